"""What one sees while a model trains; TensorBoard event files, where the package is there and where it is not."""

import importlib.util
import io
import json
import queue
import re

import pytest
from rich.console import Console

from glassformer.progress.display import display, waiting
from glassformer.runs.resume import resume_session
from glassformer.runs.stopwatch import Stopwatch
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


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_a_terminal_shows_a_live_panel(session):
    out = io.StringIO()
    watch(session, terminal(out, color_system="truecolor"))
    for part in ("majority", "step 6/6", "training loss", "validation loss", "right", "tokens/s", "'00112220' → '"):
        assert part in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_no_color_is_respected_on_a_terminal(session):
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


def test_a_resumed_run_shows_the_curve_from_its_first_step(session):
    watch(session, terminal(io.StringIO()))
    out = io.StringIO()
    watch(resume_session(session.run.folder), terminal(out))
    assert "step 6/6" in out.getvalue()
    assert "majority: done" in out.getvalue()
    assert re.search(r"1 +█ training  ● validation +6", re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()))


class Paper:
    """As much of a terminal as the panel needs: lines that wrap, a cursor that moves up, lines that are erased."""

    def __init__(self, width):
        self.width, self.lines, self.row, self.column = width, [""], 0, 0

    def write(self, text):
        for part in re.findall(r"\x1b\[[?\d;]*[a-zA-Z]|.|\n|\r", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part.startswith("\x1b"):
                if part.endswith("A"):
                    self.row -= int(part[2:-1] or 1)
                elif part.endswith("K"):
                    self.lines[self.row] = ""
            else:
                if self.column == self.width:
                    self.write("\n")
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1


def test_ctrl_c_leaves_one_panel_with_one_border(session):
    width = 80
    paper, out = Paper(width), io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, _environ={}, color_system=None)

    def shown():
        paper.write(out.getvalue())
        out.seek(0)
        out.truncate()

    def after(record):
        console.print(f"note {record.step}")  # draws the panel anew, below
        shown()
        if record.step == 4:
            paper.write("^C")  # as a terminal echoes it, wherever the cursor is
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(session, console, after)
    shown()
    paper.write("interrupted after step 4; saved\n")
    text = "\n".join(paper.lines)
    assert text.count("╭") == text.count("╰") == 1, text
    assert text.splitlines()[4].startswith("╭─ majority: interrupted ")
    assert "^C" not in text
    assert text.rstrip().endswith("interrupted after step 4; saved")


# --- in a pipe -------------------------------------------------------------------------------------------------------


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


def test_what_one_waits_for_is_said_at_once_or_when_it_takes_long(capsys, monkeypatch):
    with waiting("proving"):
        assert capsys.readouterr().err == "proving ...\n"
    with waiting("preparing text", delay=60.0):
        pass
    assert capsys.readouterr().err == ""
    said = queue.Queue()  # what a thread prints while `capsys` is read may be in neither reading
    monkeypatch.setattr("glassformer.progress.display.log", said.put)
    with waiting("preparing text", delay=0.01):
        assert said.get(timeout=60) == "preparing text ..."


def test_on_a_terminal_what_one_waits_for_moves_and_then_leaves(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("glassformer.progress.display.Console", lambda **settings: terminal(out))
    with waiting("preparing text"):
        pass
    assert "preparing text 0:00" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K"), "erased"


# --- event files -----------------------------------------------------------------------------------------------------


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
