"""How fast the explorer is, in a real browser, and what it takes: one table, asked and measured.

python benchmarks/explorer.py              all rows; needs Chromium, playwright and `glassformer pull smollm2`
python benchmarks/explorer.py --quick      without SmolLM2, and a thousand malformed requests instead of ten thousand
python benchmarks/explorer.py --only pointing    some rows alone

small       the first page and cards of a small run              smollm2     scenes of 32 and of 1,024 tokens, a change
pointing    frames while one points, 64 tokens x 30 layers       memory      twenty texts, a card of each
bounded     what 500 interactions leave in the page              exact       random cells and changes, against Python
malformed   ten thousand malformed requests
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import _explorer_limits as limits
from browser import WIDE, chromium, served, tiny_explorer
from glassformer.cli.output import print_table
from glassformer.web.router import ROUTES
from malformed import nearly_right, not_http
from raw_http import Line

SENTENCE = "The quick brown fox jumps over the lazy dog and runs into the forest. "
DRAWN = "#view[aria-busy=false] .scene-station canvas[data-painted=yes], #view [data-view=training] form"
LONG_TASKS = """() => {
  window.longest = 0;
  const keep = (one) => { window.longest = Math.max(window.longest, one.duration); };
  new PerformanceObserver((list) => list.getEntries().forEach(keep)).observe({type: "longtask"});
}"""
POINT = """async () => {
  const places = [...document.querySelectorAll(".scene-station canvas, .scene-token")];
  const times = [];
  for (let n = 0; n < 240; n += 1) {
    const place = places[(n * 7) % places.length];
    const box = place.getBoundingClientRect();
    const [right, down] = [((n * 13) % 97) / 97, ((n * 29) % 101) / 101];
    const at = {clientX: box.left + right * box.width, clientY: box.top + down * box.height, bubbles: true};
    await new Promise(requestAnimationFrame);
    const began = performance.now();
    for (const kind of ["pointerenter", "pointermove"]) place.dispatchEvent(new PointerEvent(kind, at));
    document.body.getBoundingClientRect(); // with the layout that it asks for
    times.push(performance.now() - began);
  }
  await new Promise((resolve) => setTimeout(resolve, 200));
  times.sort((a, b) => a - b);
  return [times[Math.floor(times.length * 0.95)], times.at(-1), window.longest];
}"""
CARD = """async () => {
  const canvas = document.querySelector("#view canvas");
  const before = document.querySelector("#card h2");
  const began = performance.now();
  for (const key of ["ArrowRight", "Enter"]) canvas.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const isNew = () => document.querySelector("#card h2") && document.querySelector("#card h2") !== before;
  while (!isNew()) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""

Row = tuple[str, str, str]


class Served:
    """`glassformer explore` as a process, and the time at which it printed its address."""

    def __init__(self, *words: str, folder: str | None = None) -> None:
        program = [sys.executable, "-m", "glassformer", "explore", *words, "--no-browser"]
        self.process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=folder)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]
        self.printed = time.perf_counter()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def at(self, **told: object) -> str:
        """Return the address of a state."""
        return f"{self.address}#{quote(json.dumps(told))}"


def peak(pid: int) -> float:
    """Return the most memory that a process has had, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def small(browser: object) -> list[Row]:
    """Measure a run of our own: the first page, and cards."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "majority")
        train = ["train", "majority", "--steps", "20", "--out", run]
        subprocess.run([sys.executable, "-m", "glassformer", *train], check=True, capture_output=True)
        with Served(run) as server:
            page = browser.new_page(viewport=WIDE)
            page.goto(server.address)
            page.wait_for_selector(DRAWN)
            usable = time.perf_counter() - server.printed
            page.locator(".every > summary").click()
            page.get_by_role("button", name="Open all").click()
            page.wait_for_selector("#view canvas")
            page.wait_for_timeout(1500)
            cards = [page.evaluate(CARD) for _ in range(60)]
            page.close()
    p95 = statistics.quantiles(cards, n=20)[-1]
    return [
        ("the page is usable after its address is printed", "1 s", f"{usable:.2f} s"),
        ("to open a card, 95 of 100 times", "150 ms", f"{p95:.0f} ms (60 cards)"),
    ]


def published(browser: object) -> list[Row]:
    """Measure SmolLM2: a scene of 32 tokens, a change, and a text of 1,024 tokens."""
    from glassformer.api.loading import load_tokenizer

    tokenizer = load_tokenizer("smollm2")
    texts = {size: tokenizer.decode(tokenizer.encode(SENTENCE * size)[:size]) for size in (8, 32, 1024)}
    with Served("smollm2", texts[8]) as server:
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(300_000)
        page.goto(server.address)
        page.wait_for_selector(DRAWN)  # the model is loaded
        first = _shown(page, server.at(model="smollm2", text=texts[32]), 32)
        change = {"word": "zero", "name": "blocks.3.attention.output.x", "where": {"head": 1}}
        changed = _shown(page, server.at(model="smollm2", text=texts[32], changes=[change]), 32, "#strip b")
        page.evaluate(LONG_TASKS)
        long = _shown(page, server.at(model="smollm2", text=texts[1024]), 1024, "#view .scene-token, #status p")
        said = page.locator("#status p").all_inner_texts()
        page.wait_for_timeout(1000)
        longest, memory = page.evaluate("() => window.longest"), peak(server.process.pid)
        pointed = page.evaluate(POINT)
    alone = _generate(texts[1024])
    return [
        ("SmolLM2, 32 tokens: the first scene", "1.5 s", f"{first:.2f} s"),
        ("SmolLM2, 32 tokens: a change", "1 s", f"{changed:.2f} s"),
        ("SmolLM2, 1,024 tokens: the page shows them", "", f"{long:.1f} s {' '.join(said)}".strip()),
        ("SmolLM2, 1,024 tokens: the longest task of the page", "200 ms", f"{longest:.0f} ms"),
        ("SmolLM2, 1,024 tokens: to answer the pointer, 95 of 100 times", "50 ms", f"{pointed[0]:.1f} ms"),
        (
            "SmolLM2, 1,024 tokens: memory beside `generate`",
            "1.5 times",
            f"{memory / alone:.1f} times ({memory:,.0f} MiB)",
        ),
    ]


def pointing(browser: object) -> list[Row]:
    """Measure how long the scene takes to answer the pointer: SmolLM2, 64 tokens, 30 layers."""
    from glassformer.api.loading import load_tokenizer

    tokenizer = load_tokenizer("smollm2")
    text = tokenizer.decode(tokenizer.encode(SENTENCE * 8)[:64])
    with Served("smollm2", text) as server:
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(300_000)
        _shown(page, server.address, 64)
        page.wait_for_timeout(1000)
        page.evaluate(LONG_TASKS)
        usual, most, longest = page.evaluate(POINT)
    return [
        (
            "64 tokens x 30 layers: to answer the pointer, 95 of 100 times",
            "16 ms",
            f"{usual:.1f} ms, at most {most:.1f}",
        ),
        ("64 tokens x 30 layers: the longest task while pointing", "50 ms", f"{longest:.0f} ms (0: none above 50)"),
    ]


def _shown(page: object, address: str, tokens: int, selector: str = "#view .scene-token") -> float:
    """Return the seconds until a page shows a state of so many tokens."""
    began = time.perf_counter()
    page.goto(address)
    labels = min(tokens, 30)  # of many lanes, some have labels
    there = f"document.querySelectorAll('.scene-token').length >= {labels} || document.querySelector('#status p')"
    still = "!document.querySelector('.busy')"
    page.wait_for_function(f"() => document.querySelector({selector!r}) && {still} && ({there})")
    return time.perf_counter() - began


def _generate(text: str) -> float:
    """Return the most memory that `generate` has with the same text."""
    words = ["generate", "smollm2", text, "--max-new-tokens", "4"]
    process = subprocess.Popen([sys.executable, "-m", "glassformer", *words], stdout=subprocess.DEVNULL)
    highest = 0.0
    while process.poll() is None:
        try:
            highest = max(highest, peak(process.pid))
        except (OSError, StopIteration):  # it has just ended
            break
        time.sleep(0.02)
    return highest


def malformed(count: int) -> list[Row]:
    """Send requests that are no HTTP, and questions that are nearly right; all must be answered, and none may fail."""
    rng = random.Random(1)
    answers: dict[int, int] = {}
    began = time.perf_counter()
    with served(tiny_explorer("encoder", "decoder")) as server, Line(server) as line:
        for number in range(count):
            if number % 4 == 0:
                line.close()
                answered = line.send(not_http(rng))
                line.close()
            else:
                answered = line.ask(*nearly_right(rng, [*ROUTES, "tile", "nothing"]))
            assert answered.status < 500, f"request {number}: {answered.said}"
            answers[answered.status] = answers.get(answered.status, 0) + 1
        server.explorer.jobs.stop_all()
        assert line.ask("models", {}).status == 200
    said = ", ".join(f"{answers[status]:,} × {status}" for status in sorted(answers))
    return [(f"{count:,} malformed requests", "survived", f"{said} in {time.perf_counter() - began:.0f} s")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("small", "smollm2", "pointing", "memory", "bounded", "exact", "malformed"))
    asked = parser.parse_args()
    rows: list[Row] = []

    def wanted(name: str, *, published_model: bool = False) -> bool:
        return asked.only == name or (asked.only is None and not (asked.quick and published_model))

    with chromium() as browser:
        if wanted("small"):
            rows += small(browser)
        if wanted("smollm2", published_model=True):
            rows += published(browser)
        if wanted("pointing", published_model=True):
            rows += pointing(browser)
    if wanted("bounded"):
        rows += limits.bounded(100 if asked.quick else 500)
    if wanted("memory", published_model=True):
        rows += limits.memory()
    if wanted("exact"):
        rows += limits.exact(*((100, 20) if asked.quick else (1000, 200)))
    if wanted("malformed"):
        rows += malformed(1000 if asked.quick else 10_000)
    print_table(("", "asked", "measured"), rows, title="The explorer")


if __name__ == "__main__":
    main()
