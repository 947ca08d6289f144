"""What one sees while a model trains; TensorBoard event files, where the package is there and where it is not."""

import importlib.util
import io
import json
import queue
import time

import pytest
from rich.console import Console

from glassformer.progress.display import display, waiting
from glassformer.progress.stopwatch import Stopwatch
from oracles import require
from runs import command, options, tiny_session


def watch(session, console=None, after=lambda record: None):
    clock = Stopwatch(session.run.recipe.steps, session.state.step)
    with display(session, clock, console=console) as show:
        for record in session.steps():
            clock.add(record)
            show(record)
            after(record)


def terminal(out, **settings):
    return Console(file=out, force_terminal=True, width=100, _environ={}, **settings)


@pytest.fixture
def session(tmp_path):
    return tiny_session("majority", tmp_path / "run", steps=6, eval_every=3)


def test_a_terminal_shows_a_live_panel_in_color_unless_it_is_not_wanted(session):
    out = io.StringIO()
    watch(session, terminal(out, color_system="truecolor"))
    for part in ("majority", "step 6/6", "training loss", "validation loss", "right", "tokens/s", "'00112220' → '"):
        assert part in out.getvalue()
    assert "\x1b[" in out.getvalue()

    out = io.StringIO()
    watch(session, Console(file=out, force_terminal=True, width=100, _environ={"NO_COLOR": "1"}))
    assert "step 6/6" in out.getvalue()
    assert "\x1b[3" not in out.getvalue()  # no color; moving the cursor is allowed
    assert "\x1b[38" not in out.getvalue()


@pytest.mark.parametrize(("error", "word"), [(KeyboardInterrupt, "interrupted"), (ArithmeticError, "failed")])
def test_the_last_panel_says_how_it_ended(error, word, session):
    def fail(record):
        raise error

    out = io.StringIO()
    with pytest.raises(error):
        watch(session, terminal(out), fail)
    assert f"majority: {word}" in out.getvalue()


def test_a_pipe_is_told_what_comes_and_gets_one_line_per_evaluation(session, capsys):
    watch(session)
    out, err = capsys.readouterr()
    assert out == ""
    first, *lines = [line for line in err.splitlines() if not line.startswith("compiling")]
    assert first.startswith("training majority, 6 steps; training loss: the mean of the last 20 steps")
    assert [line.split()[1] for line in lines] == ["3/6", "6/6"]


def test_a_pipe_gets_a_line_when_it_has_waited_too_long(session, capsys, monkeypatch):
    monkeypatch.setattr("glassformer.progress.display.PATIENCE", 0.0)
    watch(session)
    steps = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == [f"{step}/6" for step in range(1, 7)]
    assert "validation" not in steps[0]


def test_the_lines_in_a_pipe_grow_rarer_and_the_last_step_has_one(tmp_path, capsys):
    watch(tiny_session("majority", tmp_path / "run", steps=100, eval_every=1))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    steps = [int(line.split()[1].partition("/")[0]) for line in lines]
    assert steps[:4] == [1, 2, 3, 5]
    assert steps[-1] == 100
    assert len(steps) < 15
    assert max(map(len, lines[:-1])) < 120


def test_a_pipe_is_told_what_takes_long(capsys, monkeypatch):
    with waiting("preparing text", compiles=False):
        pass
    assert capsys.readouterr().err == ""
    said = queue.Queue()  # what a thread prints while `capsys` is read may be in neither reading
    monkeypatch.setattr("glassformer.progress.display.log", said.put)
    monkeypatch.setattr("glassformer.progress.display.DELAY", 0.01)
    monkeypatch.setattr("glassformer.progress.display.PATIENCE", -1.0)
    with waiting("preparing text", compiles=False) as show:
        assert said.get(timeout=60) == "preparing text ..."
        show(3, 8, "rows")
        assert said.get(timeout=60) == "preparing text: 3 of 8 rows"
        show(4, 8, "rows")
        assert said.get(timeout=60) == "preparing text: 4 of 8 rows, 0:00 left"


def test_a_terminal_shows_what_takes_a_moment_and_how_long_the_rest_takes(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting("preparing text", compiles=False):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("glassformer.progress.display.MOMENT", 0.0)
    with waiting("preparing text", compiles=False) as show:
        for done in (3, 5):
            show(done, 8, "rows")
        time.sleep(0.5)  # the bar is drawn ten times a second
    shown = capsys.readouterr().err
    assert "preparing text" in shown
    assert "5 of 8 rows, 0:00 left" in shown


@pytest.mark.filterwarnings("ignore")
def test_event_files_hold_the_figures_of_the_metrics(tmp_path, unseen_figures):
    require("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    result = command(
        "train", "majority", *options("majority", eval_every=2), "--steps", 4, "--out", folder, "--tensorboard"
    )
    assert result.code == 0, result.err
    events = EventAccumulator(str(folder)).Reload()
    assert {"loss", "lr", "grad_norm", "val_loss", "accuracy"} <= set(events.Tags()["scalars"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "val_loss"):
        found = [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]
        assert found == [(line["step"], line[name]) for line in lines if name in line]


def test_without_the_package_one_is_told_before_anything_is_trained(tmp_path, monkeypatch, unseen_figures):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
    )
    result = command("train", "majority", "--out", tmp_path / "run", "--tensorboard")
    assert result.code == 2
    assert "event files need the tensorboard package" in result.err
    assert "glassformer[tensorboard]" in result.err
    assert not (tmp_path / "run").exists()
