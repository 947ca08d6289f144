"""What a notebook shows: one picture, drawn anew in its place."""

import sys
import types

import pytest

import glassformer as gf
from glassformer.progress import notebook as shown
from glassformer.runs.stopwatch import Stopwatch
from glassformer.training import Evaluation, StepRecord


class Handle:
    def __init__(self, page):
        self.pages = [page]

    def update(self, page):
        self.pages.append(page)


@pytest.fixture
def notebook(monkeypatch):
    """IPython with a kernel behind it, as in a notebook; the pictures it was given."""
    handles = []

    def display(page, *, display_id):
        assert display_id
        handles.append(Handle(page))
        return handles[-1]

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    module.HTML, module.display = str, display
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return handles


def test_a_notebook_has_one_picture_that_is_drawn_anew(notebook, capsys, monkeypatch):
    monkeypatch.setattr(shown, "SECONDS", 0.0)
    gf.train(None, "counting", steps=4, eval_every=2)
    [handle] = notebook
    assert len(handle.pages) >= 4
    assert "step 4/4" in handle.pages[-1]
    assert handle.pages[-1].count("<polyline") == 2
    assert "validation" in handle.pages[-1]
    assert capsys.readouterr() == ("", "")


def test_a_notebook_is_told_what_is_compiled_what_is_refused_and_why_it_ends(notebook):
    curve = shown.Curve("a <task>", Stopwatch(9))
    curve.say("compiling kernels")
    curve.show(StepRecord(1, float("nan"), 0.1, float("inf"), 8, 0.1, refused=True))
    curve.finish()
    curve.show(StepRecord(2, 1.0, 0.1, 1.0, 8, 0.1, stop=True))
    curve.finish()
    [handle] = notebook
    assert handle.pages[0] == "<div>a &lt;task&gt;: compiling kernels</div>"
    assert "<div>step 1 refused: its numbers are not finite" in handle.pages[1]
    assert "<div>stopped early: the validation loss no longer improves</div>" in handle.pages[-1]


def test_ipython_in_a_terminal_is_no_notebook(notebook, monkeypatch):
    assert shown.is_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: types.SimpleNamespace())
    assert not shown.is_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not shown.is_notebook()


def test_losses_that_are_no_numbers_are_left_out():
    curve = shown.Curve("a task", Stopwatch(1000))
    curve._draw = lambda: None
    assert curve.picture() == ""
    for step in range(1, 1001):
        loss = float("nan") if step == 5 else 3.0 / step
        evaluation = Evaluation(float("inf"), 1, 1) if step == 500 else None
        curve.show(StepRecord(step, loss, 0.1, 1.0, 8, 0.1, evaluation=evaluation))
    assert len(curve.losses) == 999
    assert "nan" not in curve.picture()
    assert "inf" not in curve.picture()
    assert curve.picture().count(",") <= shown.POINTS + 2  # and one in 1,000
    assert 'role="img" aria-label="Losses from step 1 to 1000: between' in curve.picture()
