"""Photograph every view of the explorer, and find text that overlaps, is cut, or leaves the page.

    glassformer pull smollm2 && glassformer pull minilm
    python benchmarks/_explorer_shots.py shots                    all models, widths and schemes
    python benchmarks/_explorer_shots.py shots --models dates --widths 390 --schemes dark --views scene lens

Writes shots/MODEL-VIEW-WIDTH-SCHEME.png and prints what it found in each, one line for each defect. Small models are
trained once, into shots/runs.
"""

import argparse
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import playwright.sync_api

from explorer import Served, chromium

TEXTS = {
    "majority": "11110222",
    "text": "for x in range(",
    "dates": "3. März 2001",
    "smollm2": "When Mary and John went to the store, John gave a drink to",
    "minilm": "The cat sat on the mat.",
}
TRAINED = {"majority": 300, "text": 300, "dates": 300}
"""Steps of the models that are trained here."""

WIDTHS = {390: 844, 820: 1180, 1440: 900, 2560: 1440}
TALLEST = 2600
BUSY = "document.querySelector('#view')?.ariaBusy !== 'false' || document.querySelector('progress')?.checkVisibility()"
DEFECTS = (Path(__file__).parent / "_explorer_defects.js").read_text(encoding="utf-8")


def looks(model: str) -> dict[str, dict[str, Any]]:
    """Return the views by name: what the address says of each."""
    stack = "encoder" if model in {"majority", "minilm"} else "decoder"
    where = "decoder.blocks" if model == "dates" else "blocks"
    head = {"word": "zero", "name": f"{where}.0.attention.output.x", "where": {"head": 1}, "value": 0, "other": ""}
    zoom = f"{where}.0.attention.attend.weights"
    return {
        "welcome": {},
        "scene": {},
        "scene-lane": {"look": {"scene": {stack: {"open": 1, "head": 1, "lane": 2}}}},
        "scene-zoom": {"look": {"scene": {"zoom": zoom}}},
        "scene-card": {"look": {"card": {"open": {"name": zoom, "index": [0, 0, 2, 1]}}}},
        "scene-backward": {"look": {"scene": {"shown": "gradients"}}},
        "scene-both": {"look": {"scene": {"shown": "both"}}},
        "scene-changed": {"changes": [head], "look": {"scene": {"shown": "change"}}},
        "guide": {"look": {"guide": {"open": True}}},
        "guide-step": {"look": {"guide": {"open": True, "tour": "first", "step": 0, "given": {}}}},
        **{view: {"view": view} for view in ("lens", "change", "backward", "writing", "share")},
        "change-made": {"view": "change", "changes": [head]},
        "training": {"view": "training", "look": {"training": {"course": f"runs/{model}"} if model in TRAINED else {}}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", choices=TEXTS, default=list(TEXTS))
    parser.add_argument("--views", nargs="*", default=list(looks("majority")))
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))
    parser.add_argument("--schemes", nargs="*", choices=("light", "dark"), default=["light", "dark"])
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for model in asked.models:
        if model in TRAINED and not (asked.folder / "runs" / model).exists():
            train = ["train", model, "--record", "--steps", str(TRAINED[model]), "--out", f"runs/{model}"]
            subprocess.run(
                [sys.executable, "-m", "glassformer", *train], check=True, capture_output=True, cwd=asked.folder
            )
        key = f"runs/{model}" if model in TRAINED else model
        with chromium() as browser, Served(key, TEXTS[model], folder=str(asked.folder)) as server:
            page = browser.new_page(reduced_motion="reduce")
            page.set_default_timeout(180_000)
            for name in asked.views:
                told = {"model": key, "text": TEXTS[model], **looks(model)[name]}
                known = "removeItem('glassformer')" if name == "welcome" else "setItem('glassformer', 'known')"
                page.goto(server.address)  # another address alone would not load the page again
                page.evaluate(f"localStorage.{known}")
                page.goto("about:blank")
                page.goto(f"{server.address}#{quote(json.dumps(told))}")
                _photograph(page, asked, f"{model}-{name}")


def _photograph(page: Any, asked: Any, name: str) -> None:
    """Take the picture of a page at every width, light and dark."""
    for width in asked.widths:
        page.set_viewport_size({"width": width, "height": WIDTHS[width]})
        _rest(page)
        tall = min(TALLEST, page.evaluate("document.documentElement.scrollHeight"))
        page.set_viewport_size({"width": width, "height": max(WIDTHS[width], tall)})  # maps are drawn when in sight
        for scheme in asked.schemes:
            page.emulate_media(color_scheme=scheme)
            _rest(page)
            page.screenshot(path=asked.folder / f"{name}-{width}-{scheme}.png")
        for defect in page.evaluate(DEFECTS):
            print(f"{name}-{width}: {defect}", flush=True)


def _rest(page: Any) -> None:
    """Wait until a page is at rest, and stays so: what comes into sight asks for more. Long work is shown as it is."""
    for _ in range(2):
        page.wait_for_timeout(300)
        with contextlib.suppress(playwright.sync_api.TimeoutError):
            page.wait_for_function(f"() => !({BUSY})", timeout=60_000)


if __name__ == "__main__":
    main()
