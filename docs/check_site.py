"""Look at a built site in a real browser: `python docs/check_site.py build/docs [part of an address …]`.

Every link leads to a page and a place in it. Every page loads without an error and without a request that
leaves the machine. Light and dark, axe finds nothing serious in it. Live figures take the colors that a reader
switches the site to. No page is wider than a telephone.
"""

import contextlib
import functools
import http.server
import itertools
import shutil
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
OVERFLOW = """() => document.documentElement.scrollWidth <= innerWidth ? "" : [...document.querySelectorAll("main *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))[0]"""
AXE = """async ([part, rules]) => (await axe.run(part, {iframes: false, preload: false, ...rules}))
  .violations.filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.length} times, first ${one.nodes[0].html.slice(0, 160)}`)"""
SAMPLES = """([part, known]) => {
  const looks = new Set(known);
  for (const one of document.querySelectorAll(`${part} *`)) {
    one.classList.remove("contrast-sample");
    if (![...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    if (!one.checkVisibility()) continue;
    const {color, fontSize, fontWeight} = getComputedStyle(one), look = [color, fontSize, fontWeight];
    for (let up = one; up; up = up.parentElement) {
      const {backgroundColor, opacity} = getComputedStyle(up);
      if (backgroundColor !== "rgba(0, 0, 0, 0)") look.push(backgroundColor);
      if (opacity !== "1") look.push(opacity);
    }
    if (!looks.has(look.join())) one.classList.add("contrast-sample");
    looks.add(look.join());
  }
  return [...looks];
}"""
"""Mark one text of each color, size and background that no page had: axe takes seconds for every word of code."""
NO_CONTRAST = {"rules": {"color-contrast": {"enabled": False}}}
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


class Page(HTMLParser):
    """What a page links to, and the places in it that others can link to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := values.get(name))}
        self.links += [value for name in ("href", "src") if (value := values.get(name)) and tag != "base"]


def broken_links(root: Path, pages: list[Path]) -> Iterator[str]:
    """Yield links within the site that lead nowhere."""
    read = functools.cache(Page)
    for path in pages:
        for link in sorted({*read(path).links}):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(root)}: {link} leads nowhere"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read(target).places:
                yield f"{path.relative_to(root)}: {link} is no place of {target.name}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serve files without a line for each."""

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Start a browser that finds no other machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        started = play.chromium.launch(executable_path=program, args=[OFFLINE])
        yield started
        started.close()


def seen_troubles(root: Path, pages: list[Path]) -> Iterator[str]:
    """Yield what a browser finds wrong with the pages."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    found: list[str] = []
    looks: set[str] = set()
    with browser() as started:
        tab = started.new_page(viewport=WIDE)
        tab.on("pageerror", lambda error: found.append(f"error: {error}"))
        tab.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda asked: found.append(f"asks {asked.url}") if is_elsewhere(asked.url, home) else None)
        for number, path in enumerate(pages, 1):
            name = path.relative_to(root).as_posix()
            print(f"{number}/{len(pages)} {name}", file=sys.stderr)
            found.clear()
            # What stands around the text is the same on all pages.
            look_at(tab, home + name, "html" if number == 1 else "main", found, looks)
            yield from (f"{name}: {trouble}" for trouble in found)
    server.shutdown()


def is_elsewhere(url: str, home: str) -> bool:
    return not url.startswith((home, "data:", "blob:", "about:"))


def look_at(tab: Any, address: str, part: str, found: list[str], looks: set[str]) -> None:
    """Load a page, look at it or at a part of it, wide and narrow, light and dark, and add what is wrong.

    looks: the colors, sizes and backgrounds of texts that were seen before.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    tab.emulate_media(color_scheme="light")
    tab.set_viewport_size(WIDE)
    tab.goto(address, wait_until="load")
    tab.add_style_tag(content="* { transition: none !important; }")  # colors are read at once
    tab.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    tab.evaluate(AXE_SCRIPT)
    found += tab.evaluate(AXE, [part, NO_CONTRAST])
    found += contrast(tab, part, looks)
    found += figures_that_stay_light(tab)
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function("document.documentElement.dataset.theme == 'dark'")
    found += [f"dark: {trouble}" for trouble in contrast(tab, part, looks)]
    tab.set_viewport_size(NARROW)
    found += [f"is wider than {NARROW['width']} px: {over}" for over in [tab.evaluate(OVERFLOW)] if over]


def figures_that_stay_light(tab: Any) -> list[str]:
    """Switch the site to dark on a light system, and back; return the live figures that do not follow."""
    found = []
    for figure in tab.query_selector_all("iframe.live"):
        figure.scroll_into_view_if_needed()
        inside = figure.content_frame()
        inside.wait_for_load_state("load")
        tab.evaluate("document.documentElement.dataset.theme = 'dark'")
        for _ in range(50):  # its policy lets no function wait inside
            if inside.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark":
                break
            tab.wait_for_timeout(100)
        else:
            found.append(f"{figure.get_attribute('src')} does not follow the switch to dark")
        tab.evaluate("document.documentElement.dataset.theme = 'light'")
    return found


def contrast(tab: Any, part: str, looks: set[str]) -> list[str]:
    """Return texts that are hard to read, of those that look like none before them."""
    known = len(looks)
    looks.update(tab.evaluate(SAMPLES, [part, [*looks]]))
    return tab.evaluate(AXE, [".contrast-sample", CONTRAST]) if len(looks) > known else []


def search_finds(root: Path) -> Iterator[str]:
    """Yield a trouble if the search, which needs no server, finds nothing."""
    with browser() as started:
        tab = started.new_page()
        tab.goto((root / "search.html").as_uri() + "?q=softmax")
        try:
            tab.wait_for_selector("#search-results li a", timeout=60_000)
        except Exception:
            yield "search.html: finds nothing for softmax"


def main() -> None:
    """Check the site in the first argument, or its pages whose address has one of the others in it."""
    root, chosen = Path(sys.argv[1]).resolve(), sys.argv[2:]
    pages = sorted(path for path in root.rglob("*.html") if "_static" not in path.parts and "-live-" not in path.name)
    pages.remove(root / "index.html")  # leads on at once
    seen = [path for path in pages if not chosen or any(part in path.as_posix() for part in chosen)]
    count = 0
    for trouble in itertools.chain(broken_links(root, pages), seen_troubles(root, seen), search_finds(root)):
        print(trouble, flush=True)
        count += 1
    print(f"{len(seen)} pages seen, {count} troubles")
    sys.exit(bool(count))


if __name__ == "__main__":
    main()
