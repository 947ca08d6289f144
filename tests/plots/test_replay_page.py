"""The page of a replay: valid, whole, nothing from elsewhere, no word of it taken for markup."""

import base64
import json
import re

import numpy as np
import pytest

from browser import chromium
from glassformer.plots import write_replay
from pages import read_page

VALUES = {
    "loss": np.array([np.nan, 2.0]),
    "induction": np.array([[[0.25, 0.5]], [[0.75, 1.0]]]),
    "attention": np.linspace(0, 1, 2 * 2 * 4).reshape(2, 1, 2, 2, 2),
    "answers": ["</script><b>", "x"],
}


def test_the_page_holds_every_frame_and_needs_nothing_from_elsewhere(tmp_path):
    where = tmp_path / "new" / "replay.html"
    bad = "<script>alert('x')</script>"
    path = write_replay(
        where,
        [0, 20],
        VALUES,
        title=bad,
        intro=bad,
        metrics=[{"step": 1, "loss": 3.0}],
        labels=(["<b>", "b"], ["a", "b"]),
    )
    assert path == where
    page = read_page(path)
    assert page.tags.count("script") == 2
    assert page.words.count(bad) == 3
    assert {"play", "at", "said", "body", "data"} == set(page.ids)
    text = path.read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert data["steps"] == [0, 20]
    heads, maps, answers, loss = data["parts"]
    assert loss == {"name": "loss", "kind": "number", "values": [None, 2.0]}
    assert (heads["kind"], heads["values"][1]) == ("heads", [[0.75, 1.0]])
    assert answers["values"] == ["</script><b>", "x"]
    levels = np.frombuffer(base64.b64decode(maps["bytes"]), np.uint8).reshape(maps["shape"])
    np.testing.assert_allclose(levels / 255, VALUES["attention"], atol=0.5 / 255)
    assert len(data["colors"]["dark"]) == 256


@pytest.fixture(scope="module")
def own_browser():
    """A browser without a window, of this file alone."""
    with chromium() as found:
        yield found


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1200)])
def test_the_page_moves_with_its_slider(theme, width, own_browser, tmp_path):
    values = {**VALUES, "heads.induction": VALUES["induction"], "weight.w": np.array([1.0, 3.0])}
    path = write_replay(tmp_path / "replay.html", [0, 20], values, title="Mine", labels=(["a", "b"], ["a", "b"]))
    page = own_browser.new_page(color_scheme=theme, viewport={"width": width, "height": 800})
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    assert page.inner_text("#said") == "step 0 of 20"
    page.locator("#at").press("End")
    assert page.inner_text("#said") == "step 20 of 20"
    assert "0.75" in page.inner_text("table")
    assert page.inner_text("pre") == "x"
    assert page.locator("canvas").count() == 2
    page.locator("canvas").first.hover()
    assert page.locator(".tokens .seen").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert wrong == []
    page.close()
