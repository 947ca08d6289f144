"""One server and one page for each file, in a browser that they share; in no test may anything go wrong on it."""

import pytest

import browser as browsers
from glassformer.web.router import load_routes


@pytest.fixture(scope="module")
def explorer(numpy_engine):
    """Tiny models of the three architectures, in memory, and all routes."""
    load_routes()
    return browsers.tiny_explorer()


@pytest.fixture(scope="module")
def server(explorer):
    """A server of them, from a thread; `server.address` is where the page is."""
    with browsers.served(explorer) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    """A browser without a window, the same for files that follow each other."""
    return browsers.shared_chromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Close the browser where the next file does not begin with it: while it is open, no other event loop runs here."""
    try:
        return (yield)
    finally:
        if nextitem is None or (nextitem.path != item.path and "browser" not in nextitem.fixturenames):
            browsers.close_shared_chromium()


@pytest.fixture(scope="module")
def tab(browser):
    """A page, and what went wrong on it."""
    context = browser.new_context(viewport=browsers.WIDE, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(30_000)
    page, found = context.new_page(), browsers.Troubles()
    found.watch(page, browsers.BLANK)
    yield page, found
    context.close()


@pytest.fixture
def troubles(tab):
    """What went wrong on `page`; a test that means something to go wrong forgives it: `troubles.forgive("400")`."""
    return tab[1]


@pytest.fixture
def page(tab, server, request):
    """A page for `browsers.visit`, as the test before it left it; the test fails if anything goes wrong on it.

    What it shows, it keeps in its address: with another, nothing of it is left.
    """
    one, found = tab
    found.home, failed = server.address, request.session.testsfailed
    yield one
    one.unroute_all()
    if request.session.testsfailed > failed:
        one.goto(browsers.BLANK)
    one.set_viewport_size(browsers.WIDE)
    one.emulate_media(color_scheme="light", reduced_motion="reduce")
    wrong, found[:] = list(found), []
    assert wrong == []


@pytest.fixture
def new_page(page):
    """The same, emptied before and after."""
    page.goto(browsers.BLANK)
    yield page
    page.goto(browsers.BLANK)
