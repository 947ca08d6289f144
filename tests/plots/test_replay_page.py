"""The page of a replay: valid, whole, nothing from elsewhere, no word of it taken for markup."""

import base64
import json
import re

import numpy as np

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
