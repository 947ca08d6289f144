"""One server and one browser for each file, a fresh page for each test, on which nothing may go wrong."""

import pytest

import browser as browsers


@pytest.fixture(scope="module")
def explorer(numpy_engine):
    """Tiny models of the three architectures, in memory."""
    return browsers.tiny_explorer()


@pytest.fixture(scope="module")
def server(explorer):
    """A server of them, from a thread; `server.address` is where the page is."""
    with browsers.served(explorer) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    """A browser without a window, until its file ends: while it is open, no other event loop runs in this thread."""
    with browsers.chromium() as found:
        yield found


@pytest.fixture
def troubles():
    """What went wrong on `page`; a test that means something to go wrong forgives it: `troubles.forgive("400")`."""
    return browsers.Troubles()


@pytest.fixture
def page(browser, server, troubles):
    """A new page, open at the server's address; the test fails if anything goes wrong on it."""
    context = browser.new_context(viewport=browsers.WIDE, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(10_000)
    one = context.new_page()
    troubles.watch(one, server.address)
    one.goto(server.address)
    one.wait_for_selector("#view [data-view]")
    yield one
    context.close()
    assert troubles == []
