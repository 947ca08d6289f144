"""What one sees while a model trains; TensorBoard event files, where the package is there and where it is not."""

import importlib.util
import io
import json

import pytest
from rich.console import Console

from glassformer.cli.display import display, duration, smoothed, sparkline
from glassformer.runs.session import Stopwatch
from oracles import require
from runs import command, options, tiny_session


def watch(session, console=None):
    clock = Stopwatch(session.run.recipe.steps)
    with display(session, console=console) as show:
        for record in session.steps():
            clock.add(record)
            show(record, clock)


@pytest.fixture
def session(tmp_path):
    return tiny_session("majority", tmp_path / "run", steps=6, eval_every=3)


def test_a_terminal_shows_a_live_panel(session):
    out = io.StringIO()
    watch(session, Console(file=out, force_terminal=True, width=100, color_system="truecolor"))
    for part in ("majority", "step 6/6", "loss", "validation", "right", "tokens/s", "left", "'00112220' → '"):
        assert part in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_no_color_is_respected_on_a_terminal(session, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    watch(session, Console(file=out, force_terminal=True, width=100))
    assert "step 6/6" in out.getvalue()
    assert "\x1b[3" not in out.getvalue()  # no color; moving the cursor is allowed
    assert "\x1b[38" not in out.getvalue()


def test_a_pipe_shows_one_line_per_evaluation(session, capsys):
    watch(session)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[1] for line in err.splitlines()] == ["3/6", "6/6"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (5.4, "0:05"), (59.9, "1:00"), (65, "1:05"), (7200, "2:00:00"), (3661, "1:01:01")],
)
def test_durations_read_like_clocks(seconds, text):
    assert duration(seconds) == text


def test_sparklines_draw_the_course():
    assert sparkline([]) == ""
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert len(sparkline(list(range(1000)))) <= 60


def test_losses_are_smoothed_over_the_last_steps():
    assert smoothed([9.0] * 5 + [1.0] * 20) == 1.0
    assert smoothed([]) != smoothed([])  # not a number


@pytest.mark.filterwarnings("ignore")
def test_event_files_hold_the_figures_of_the_metrics(tmp_path):
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


def test_without_the_package_one_is_told_before_anything_is_trained(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
    )
    result = command("train", "majority", "--out", tmp_path / "run", "--tensorboard")
    assert result.code == 2
    assert "event files need the tensorboard package" in result.err
    assert "glassformer[tensorboard]" in result.err
    assert not (tmp_path / "run").exists()
