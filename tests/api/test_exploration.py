"""The glass case from Python: a page inside a notebook, a file, or the browser."""

import html
import re
import sys

import numpy as np
import pytest

import glassformer as gf
from browser import serve_once
from glassformer.api import exploration
from glassformer.core.errors import GlassformerError

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.fixture
def decoder():
    model = gf.build("tiny-decoder", width=8, heads=2, feed_forward=16, layers=1)
    return model, model.init(0), gf.Batch(np.array([[5, 3, 8, 3], [1, 2, 3, 4]]))


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setattr(exploration, "is_notebook", lambda: True)


def test_a_notebook_shows_the_page_below_the_cell(decoder, notebook):
    cell = gf.explore(*decoder)._repr_html_()
    assert len(cell) < 5_000_000
    [inside] = re.findall(r'srcdoc="([^"]*)"', cell)
    assert html.unescape(inside).startswith("<!doctype html>")
    assert 'sandbox="allow-scripts allow-downloads"' in cell
    assert "IPython" not in sys.modules


def test_elsewhere_it_is_served_and_opened_in_the_browser(decoder, monkeypatch, capsys):
    windows = []
    monkeypatch.setattr("glassformer.web.server.webbrowser.open", windows.append)
    served = serve_once(monkeypatch)
    gf.explore(*decoder)
    [window] = windows
    assert window.startswith("file://")
    assert served[0].models["models"] == [{"key": "model", "title": "Decoder", "kind": "given"}]
    assert f"explore it at {served[0].address}; Ctrl-C ends it" in capsys.readouterr().err
    gf.explore(*decoder, show=False).serve(browser=False)
    assert len(windows) == 1


def test_a_trained_and_a_loaded_model_read_a_text(tmp_path):
    model = gf.train("counting", steps=1, show=False)
    seen = model.explore("1 2 3", show=False)
    assert seen.text == "1 2 3"
    path = seen.save(tmp_path / "counting.html")
    assert path.read_text(encoding="utf-8") == seen.html()
    assert model.explore(show=False).text == "1"

    model = gf.train("counting", steps=1, show=False)
    gf.save(model, tmp_path / "kept")
    alone = gf.TrainedModel(model.config, model.params, model.tokenizer, source="mine")
    assert alone.explore("1", show=False).html().startswith("<!doctype html>")
    with pytest.raises(GlassformerError, match="900 tokens"):
        alone.explore("1 " * 900, show=False).html()
