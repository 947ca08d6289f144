"""Rows of `explorer.py`: numbers that equal Python's, pages that stay small, memory that stays bounded."""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import TASKS, WIDE, chromium, rest, served, tiny_explorer
from web.test_exactness import Page, compare_cells, compare_changes

TEXTS = ("for x in", "if y in ", "def f(a)", "return x")
SMALL = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "batch": 4, "context": 32, "steps": 8}
"""A decoder that is trained in seconds, for its recorded steps."""
FIRST = 40
"""Interactions after which a page has been everywhere once: what it has then is what it needs."""

Row = tuple[str, str, str]


def exact(cells: int = 1000, changes: int = 200) -> list[Row]:
    """Compare random cells and random changes with Python, bit for bit, for each architecture."""
    rows = []
    with served(tiny_explorer()) as server:
        for architecture in TASKS:
            page, began = Page(server.address), time.perf_counter()
            compare_cells(page, architecture, cells)
            made = compare_changes(page, architecture, changes)
            page.line.close()
            said = f"{cells:,} cells, {len(made)} changes in {time.perf_counter() - began:.0f} s"
            rows.append((f"{architecture}: equal to Python bit for bit", "1,000 cells, 200 changes", said))
    return rows


def bounded(count: int = 500) -> list[Row]:
    """Use every view and all of the scene; compare what the page holds with what it held at the beginning."""
    from explorer import Served

    with tempfile.TemporaryDirectory() as folder:
        settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
        train = ["train", "text", *settings, "--record", "--out", "runs/text"]
        subprocess.run([sys.executable, "-m", "glassformer", *train], check=True, capture_output=True, cwd=folder)
        with chromium() as browser, Served("runs/text", TEXTS[0], folder=folder) as server:
            page = browser.new_context(viewport=WIDE, reduced_motion="reduce").new_page()
            page.set_default_timeout(60_000)
            page.add_init_script("localStorage.setItem('glassformer', 'known')")
            page.goto(server.address)
            rest(page)
            figures = {}
            for number, act in zip(range(count + 1), itertools.cycle(_interactions(page)), strict=False):
                if number in (FIRST, count) or number % 100 == 0:
                    figures[number] = _figures(page)
                    print(number, *figures[number], file=sys.stderr, flush=True)
                act(number)
                rest(page)
    named = zip(("DOM nodes", "listeners", "heap, MB"), figures[FIRST], figures[count], strict=True)
    return [(f"{count} interactions: {name}", "twice the first", f"{a:,} → {b:,}") for name, a, b in named]


def _figures(page: Any) -> tuple[float, ...]:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return int(found["Nodes"]), int(found["JSEventListeners"]), round(found["JSHeapUsedSize"] / 1e6, 2)


def _interactions(page: Any) -> list[Any]:
    """Return what a reader does, each as a function of how often something was done before."""

    def click(selector: str, which: int = 0, **how: Any) -> None:
        found = page.locator(selector)
        if found.count():
            found.nth(which % found.count()).click(**how)

    def tab(name: str) -> Any:
        return lambda number: click(f"#tab-{name}")

    def experiment(number: int) -> None:
        click("#tab-experiments")
        click("#experiments button", number)

    def text(number: int) -> None:
        page.locator("#text").fill(TEXTS[number % len(TEXTS)])
        page.locator("#text").press("Enter")

    def point(number: int) -> None:
        click("#tab-scene")
        for canvas in page.locator(".scene-station canvas").all()[:6]:
            canvas.hover(position={"x": 5, "y": 5 + number % 40})

    def step(number: int) -> None:
        slider = page.locator("#steps input[type=range]")
        if slider.count():
            slider.evaluate(
                "(one, at) => { one.value = at % (+one.max + 1); one.dispatchEvent(new Event('input')); }", number
            )

    def clicking(selector: str, more: int = 0) -> Any:
        return lambda number: click(selector, number + more)

    def press(key: str) -> Any:
        return lambda number: page.keyboard.press(key)

    shown = ".scene-tools [role=group] button"
    return [
        point, clicking(".scene-closed"), clicking(".scene-card"), clicking(".scene-token"), clicking(shown),
        clicking(shown, 1), clicking(".scene-title"), lambda number: page.go_back(), clicking(".scene-station canvas"),
        text, step, step, clicking("button:has-text('What happens without'), button:has-text('on again')"),
        press("Escape"), press("Control+z"), experiment, experiment, tab("writing"), clicking("button.choice"),
        tab("training"), tab("guide"), tab("share"), tab("scene"), clicking("#strip button:has-text('Take all back')"),
    ]  # fmt: skip


def memory(texts: int = 20) -> list[Row]:
    """Read texts with SmolLM2 and open a card of each, its gradient as well; watch the memory of the server."""
    from explorer import Served, peak

    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    first = values = 0.0
    with Served("smollm2") as server:

        def ask(word: str, question: dict[str, Any]) -> Any:
            body = json.dumps(question).encode()
            request = urllib.request.Request(f"{server.address}ask/{word}", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)

        for number in range(texts):
            text = (
                f"The {words[number % 12]} cats of {number} Paris sat on the mat and looked at the sea while it rained"
            )
            state = {"model": "smollm2", "text": text, "changes": [], "of": {"kind": "loss"}, "steps": []}
            for word in ("run", "scene"):
                ask(word, {"state": state})
            question = {"state": state, "name": "blocks.3.attention.attend.weights", "index": [0, 1, 5, 3]}
            began = time.perf_counter()
            ask("card", question)
            values = max(values, time.perf_counter() - began)
            first = first or values
            ask("card", {**question, "wait": True})
        status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
        last = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1e6
        return [
            (
                f"SmolLM2, {texts} texts with a card each: memory",
                "2.5 GB",
                f"{last:.2f} GB, at most {peak(server.process.pid) / 953.67:.2f}",
            ),
            ("SmolLM2: the value of the first card", "1 s", f"{first:.2f} s, at most {values:.2f}"),
        ]
