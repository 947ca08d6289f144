"""One server and one browser with one page for each file; in no test may anything go wrong on it."""

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


@pytest.fixture(scope="module")
def tab(browser, server):
    """A page, and what went wrong on it."""
    context = browser.new_context(viewport=browsers.WIDE, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(30_000)
    page, found = context.new_page(), browsers.Troubles()
    found.watch(page, server.address)
    yield page, found
    context.close()


@pytest.fixture
def troubles(tab):
    """What went wrong on `page`; a test that means something to go wrong forgives it: `troubles.forgive("400")`."""
    return tab[1]


@pytest.fixture
def page(tab):
    """An empty page, for `browsers.visit` to open; the test fails if anything goes wrong on it."""
    one, found = tab
    yield one
    one.goto(browsers.BLANK)  # nothing is left of the page: what it keeps, it keeps in its address
    one.unroute_all()
    one.set_viewport_size(browsers.WIDE)
    one.emulate_media(color_scheme="light", reduced_motion="reduce")
    wrong, found[:] = list(found), []
    assert wrong == []
