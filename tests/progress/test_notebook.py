"""What a notebook shows: one panel, drawn anew in its place."""

import sys
import types
from dataclasses import replace

import pytest

import glassformer as gf
from glassformer.data import build_task
from glassformer.progress import display, is_notebook
from glassformer.progress.stopwatch import Stopwatch
from runs import tiny_session


class Handle:
    def __init__(self, page):
        self.pages = [page]

    def update(self, page):
        self.pages.append(page)


@pytest.fixture
def notebook(monkeypatch):
    """IPython with a kernel behind it, as in a notebook; the pages it was given."""
    handles = []

    def put(page, *, display_id):
        assert display_id
        handles.append(Handle(page))
        return handles[-1]

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    module.HTML, module.display = str, put
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return handles


def test_a_notebook_has_one_panel_that_is_drawn_anew(notebook, capsys, monkeypatch):
    monkeypatch.setattr(display, "PER_SECOND", 1e9)
    gf.train("counting", steps=4, eval_every=2)
    [handle] = notebook
    assert len(handle.pages) >= 4
    assert all(page.startswith("<pre") for page in handle.pages)
    for part in ("counting: done", "step 4/4", "validation loss", "●"):
        assert part in handle.pages[-1]
    assert capsys.readouterr() == (f"{build_task('counting').notes[0]}\n", "")


def test_a_notebook_shows_how_a_training_ended_and_escapes_its_title(notebook, tmp_path):
    session = tiny_session("majority", tmp_path / "run", steps=6)
    session.task = replace(session.task, name="a <task>")
    with pytest.raises(ArithmeticError), display.display(session, Stopwatch(6)):
        raise ArithmeticError
    assert "a &lt;task&gt;: failed" in notebook[0].pages[-1]


def test_ipython_in_a_terminal_is_no_notebook(notebook, monkeypatch):
    assert is_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: types.SimpleNamespace())
    assert not is_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not is_notebook()
