"""A browser for tests of the explorer, what must never happen in it, and tiny models of the three architectures.

A test asks for the fixtures of `web/conftest.py`: `server`, `page`, `troubles`. Without a browser it is skipped, unless
GLASSFORMER_REQUIRE_ALL is 1: then it fails.
"""

import contextlib
import functools
import json
import os
import shutil
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from glassformer.api.trained_model import TrainedModel
from glassformer.data import build_task
from glassformer.models import build
from glassformer.runs.planning import model_config
from glassformer.web.explorer import Explorer
from glassformer.web.offers import Offer
from glassformer.web.router import ask
from glassformer.web.server import Server, _Ended
from glassformer.web.views import PageView
from oracles import refuse, require
from runs import TINY

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WANTED = f"there is no browser ({', '.join(BROWSERS)}); `apt-get install chromium`, or what your system has"

TASKS = {"encoder": "majority", "decoder": "text", "encoder-decoder": "dates"}
TEXTS = {"encoder": "11110222", "decoder": "for x in", "encoder-decoder": "3. März 2001"}
SIZES = {"width": 8, "heads": 2, "feed_forward": 16, "layers": 2}

SAVING = ("--disable-gpu", "--disable-site-isolation-trials", "--renderer-process-limit=1")
"""Nothing is drawn by a GPU, and all pages share a process, rather than start one for each address."""

WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
BLANK = "about:blank"
EXPERIMENTS = [view for view in PageView if view.group == "experiments"]
GO_ON = """(address) => {
  document.activeElement.blur();
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}"""
AXE_RUN = """async (options) => (await axe.run(document, options)).violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => ({id: one.id, help: one.help, count: one.nodes.length, first: one.nodes[0].html}))"""


def tiny_model(architecture: str, **changes: Any) -> TrainedModel:
    """Return a model of random numbers in double precision, with a task that says what its ids mean."""
    name = TASKS[architecture]
    small = {k: v for k, v in TINY[name].items() if k not in {*SIZES, "encoder_layers", "batch", "context"}}
    task = build_task(name, **small)
    more = {"encoder_layers": 2, "context": 16} if architecture == "encoder-decoder" else {}
    model = build(model_config(task, None, {**SIZES, **more, **changes}))
    return TrainedModel.of_task(model, model.init(0, np.float64), task, source=architecture)


def tiny_explorer(*architectures: str) -> Explorer:
    """Return an explorer of such models, by the names of their architectures; all three unless some are named."""
    names = architectures or tuple(TASKS)
    explorer = Explorer({}, first=names[0], prompt=TEXTS[names[0]])
    for name in names:
        explorer.add(Offer(name, f"a tiny {name}", "given", name), tiny_model(name))
    return explorer


def state(architecture: str, **more: Any) -> dict[str, Any]:
    """Return a state of such a model, as a page sends it."""
    return {"model": architecture, "text": TEXTS[architecture], **more}


def ended(explorer: Explorer, job: dict[str, Any]) -> Any:
    """Wait for a job; return what came of it."""
    while not job["ended"]:
        job = ask(explorer, "job", {"job": job["job"]})
    assert job["error"] is None, job["error"]
    return job["result"]


@contextlib.contextmanager
def served(explorer: Explorer) -> Iterator[Server]:
    """Serve an explorer from a thread."""
    server = Server(explorer)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    while not server.server.started:
        assert thread.is_alive(), "the server ended"
        time.sleep(0.005)
    try:
        yield server
    finally:
        server.end()
        thread.join(10)
        assert not thread.is_alive(), "the server does not end"


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Open a browser without a window."""
    require("playwright")
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        refuse(WANTED)
    alone = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=[*SAVING, *alone])
        yield browser
        browser.close()


_open = contextlib.ExitStack()


@functools.cache
def shared_chromium() -> Any:
    """Return the browser that is open in this process; open one where none is, which takes as long as a test."""
    return _open.enter_context(chromium())


def close_shared_chromium() -> None:
    """Close that browser, if there is one; whoever asks next opens another."""
    shared_chromium.cache_clear()
    _open.close()


def address(server: Server, **told: Any) -> str:
    """Return the address that opens a state; without one, the server's own."""
    return f"{server.address}#{urllib.parse.quote(json.dumps(told))}" if told else server.address


def visit(page: Any, server: Server, selector: str = "#view [data-view]", **told: Any) -> None:
    """Open a state on a page, and wait until it is at rest and something of it is there.

    A page that is there already goes on to the state, as by a link in it; an empty one loads it.
    """
    if page.url.startswith(server.address) and told:
        page.evaluate(GO_ON, address(server, **told))
    else:
        page.goto(address(server, **told))
    rest(page)
    page.wait_for_selector(selector)


def rest(page: Any) -> None:
    """Wait until all that a page asked for is there, and drawn."""
    page.wait_for_selector("#view[aria-busy=false]")


def told(page: Any) -> dict[str, Any]:
    """Return the state in the address of a page."""
    return json.loads(urllib.parse.unquote(page.evaluate("location.hash")[1:]) or "{}")


def open_tab(page: Any, view: str) -> None:
    """Open a view by its tab; those of experiments stand in a second row."""
    if view in EXPERIMENTS:
        page.click("#tab-experiments")
    page.click(f"#tab-{view}")


def walk(page: Any) -> None:
    """Open every view by its tab: each comes to rest, shows something, and refuses nothing."""
    tabs = page.locator("#views button, #experiments button").evaluate_all("all => all.map((one) => one.id)")
    assert sorted(tabs) == sorted(["tab-experiments", "tab-guide", *(f"tab-{view}" for view in PageView)])
    for view in PageView:
        open_tab(page, view)
        page.wait_for_selector(f"#view [data-view={view}]:not(:empty)")
        rest(page)
        refused = page.locator("#view .bad:visible, #status p").all_inner_texts()
        assert [text for text in refused if text] == [], view


class Troubles(list):
    """What went wrong on a page: errors of the console and of scripts, requests that failed or went elsewhere."""

    home = ""
    """How the addresses begin that requests may go to."""

    def watch(self, page: Any, home: str) -> None:
        """Listen to a page whose requests go to addresses that begin with `home`."""
        self.home = home
        page.on("console", lambda told: told.type == "error" and self.append(f"console: {told.text}"))
        page.on("pageerror", lambda error: self.append(f"script: {error}"))
        page.on(
            "request",
            lambda asked: asked.url.startswith((self.home, BLANK)) or self.append(f"elsewhere: {asked.url[:200]}"),
        )
        # A question that the page itself took back is none.
        page.on(
            "requestfailed",
            lambda asked: "ERR_ABORTED" in str(asked.failure) or self.append(f"failed: {asked.url} {asked.failure}"),
        )

    def forgive(self, *words: str) -> None:
        """Forget what a test meant to happen, such as the refusal of bad input; refuse if nothing of it did."""
        meant = [trouble for trouble in self if any(word in trouble for word in words)]
        assert meant, f"nothing of {words} happened: {list(self)}"
        self[:] = [trouble for trouble in self if trouble not in meant]


def violations(page: Any, *rules: str, without: tuple[str, ...] = ()) -> list[str]:
    """Return what axe finds serious on a page as it is now, by all of its rules or some; each with its first place."""
    require("axe_playwright_python")
    from axe_playwright_python.base import AXE_SCRIPT

    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    only = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    left_out = {"rules": {rule: {"enabled": False} for rule in without}}
    found = page.evaluate(AXE_RUN, {"resultTypes": ["violations"], "preload": False, **only, **left_out})
    return [f"{one['id']}: {one['help']} ({one['count']}, first {one['first'][:160]})" for one in found]


def check_access(page: Any) -> None:
    """Refuse a page that people with other eyes or hands cannot use: light and dark, wide and narrow.

    Of what the rules ask, the theme changes colors alone, and the width all but colors.
    """
    assert violations(page) == [], "light, wide"
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == [], "dark, wide"
    page.set_viewport_size(NARROW)
    assert violations(page, without=("color-contrast",)) == [], "narrow"
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= NARROW["width"], f"the page is {wide} pixels wide on a screen of {NARROW['width']}"
    page.set_viewport_size(WIDE)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= WIDE["width"], f"the page is {wide} pixels wide on a screen of {WIDE['width']}"


class Served(NamedTuple):
    """What `glassformer explore` served, and what the page would have been told first."""

    address: str
    page: str
    models: dict[str, Any]


def serve_once(patch: Any) -> list[Served]:
    """Let every server answer for its page and for its list of models, then end; return what they said, in a list."""
    found: list[Served] = []

    def run(self: Any, sockets: list[Any]) -> None:
        thread = threading.Thread(target=genuine, args=(self, sockets), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/{self.config.app.secret}/"
        found.append(Served(address, get(address), json.loads(get(f"{address}ask/models", b"{}"))))
        self.should_exit = True
        thread.join(10)

    genuine = _Ended.run
    patch.setattr(_Ended, "run", run)
    return found


def get(address: str, body: bytes | None = None) -> str:
    """Return what a server says at an address."""
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=10) as answer:
        return answer.read().decode()
