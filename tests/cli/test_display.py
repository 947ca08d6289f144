"""What one sees while a model trains."""

import io

import pytest
from rich.console import Console

from glassformer.cli.display import display, duration, smoothed, sparkline
from glassformer.runs.session import Stopwatch
from runs import tiny_session


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
