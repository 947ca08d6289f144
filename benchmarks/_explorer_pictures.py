"""Draw docs/images/explorer.png and explorer_dark.png: the page as it is, over a classifier trained a moment before.

python benchmarks/_explorer_pictures.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from explorer import DRAWN, Served, chromium

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
RUN = "runs/majority"
SIZE = {"width": 1440, "height": 900}
OPEN = '["blocks.0", "blocks.0.attention", "blocks.0.attention.attend"]'
CARD = '{"name": "blocks.0.attention.attend.weights", "index": [0, 0, 4, 2], "gradient": false}'
TOLD = f'{{"text": "11110222", "look": {{"map": {{"open": {OPEN}}}, "card": {{"open": {CARD}}}}}, "model": "{RUN}"}}'


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        train = [sys.executable, "-m", "glassformer", "train", "majority", "--steps", "400", "--out", RUN]
        subprocess.run(train, check=True, capture_output=True, cwd=folder)
        with Served(RUN, folder=folder) as server, chromium() as browser:
            for scheme, name in (("light", "explorer.png"), ("dark", "explorer_dark.png")):
                page = browser.new_page(viewport=SIZE, color_scheme=scheme)
                page.goto(f"{server.address}#{quote(TOLD)}")
                page.wait_for_selector(DRAWN)
                page.wait_for_selector("#view canvas")
                page.wait_for_timeout(2000)
                page.screenshot(path=IMAGES / name)
                print(IMAGES / name)


if __name__ == "__main__":
    main()
