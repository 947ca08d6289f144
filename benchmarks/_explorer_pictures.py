"""Draw the pictures of the explorer in docs/images: the scene of SmolLM2, light and dark, and a training as it goes on.

    glassformer pull smollm2
    python benchmarks/_explorer_pictures.py

explorer.png, explorer_dark.png    SmolLM2 finishes a sentence: text, block and head are those that README.md names
explorer_training.webp             cross-attention forms while a model learns to translate dates: a frame for each step
"""

import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from explorer import Served, chromium

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROMPT = re.findall(r'explore smollm2 "(.+?)"', README)[0]
BLOCK, HEAD = map(int, re.findall(r"In block (\d+), head (\d+), the last token looks at", README)[0])
SIZE = {"width": 1440, "height": 1000}
READY = "#view[aria-busy=false] .scene-station canvas[data-painted=yes]"
RUN = "runs/dates"
STEPS = (0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200)
FRAME = 600
"""Milliseconds that a frame is shown."""


def main() -> None:
    with chromium() as browser:
        _still(browser)
        _moving(browser)


def _still(browser: Any) -> None:
    """Draw the scene of SmolLM2, its last token followed."""
    told = {
        "model": "smollm2",
        "text": PROMPT,
        "look": {"scene": {"decoder": {"open": BLOCK, "head": HEAD, "lane": 13}}},
    }
    with Served("smollm2", PROMPT) as server:
        for scheme, name in (("light", "explorer.png"), ("dark", "explorer_dark.png")):
            page = _opened(browser, server, told, scheme)
            page.screenshot(path=IMAGES / name)
            print(IMAGES / name)


def _moving(browser: Any) -> None:
    """Draw the scene of a decoder that translates dates after more and more steps."""
    with tempfile.TemporaryDirectory() as folder:
        train = ["train", "dates", "--record", "--steps", str(STEPS[-1]), "--out", RUN]
        subprocess.run([sys.executable, "-m", "glassformer", *train], check=True, capture_output=True, cwd=folder)
        look = {"scene": {"decoder": {"open": 0, "head": 0}}}
        with Served(RUN, folder=folder) as server:
            frames = []
            for step in STEPS:
                told = {"model": f"{RUN}@{step}", "text": "3. März 2001", "answer": "2001-03-03", "look": look}
                page = _opened(browser, server, told, "light")
                stack = page.locator(".scene-stack[data-stack=decoder]")
                frames.append(Image.open(io.BytesIO(stack.screenshot())).convert("RGB"))
        size = (1100, round(frames[0].height * 1100 / frames[0].width))
        small = [frame.resize(size, Image.Resampling.LANCZOS) for frame in frames]
        path = IMAGES / "explorer_training.webp"
        small[0].save(path, save_all=True, append_images=small[1:], duration=FRAME, loop=0, quality=70, method=6)
        print(path, f"{path.stat().st_size:,} bytes")


def _opened(browser: Any, server: Served, told: dict[str, Any], scheme: str) -> Any:
    page = browser.new_page(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
    page.add_init_script("localStorage.setItem('glassformer', 'known')")
    page.goto(f"{server.address}#{quote(json.dumps(told))}")
    page.wait_for_selector(READY, timeout=120_000)
    page.wait_for_timeout(1500)
    return page


if __name__ == "__main__":
    main()
