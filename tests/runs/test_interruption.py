"""Ctrl-C, as a real signal, at any moment of a run: it loses nothing."""

import signal
import sys
import threading

import pytest

from glassformer.core.dispatch import use_engine
from glassformer.runs.start import resume_session
from runs import assert_same_run, finish, tiny_session

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go elsewhere"
)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


PLAN = {"steps": 4, "eval_every": 2, "save_every": 2, "dropout": 0.1, "ema": 0.9}


TRAINING = ("/glassformer/training/", "/glassformer/runs/", "/glassformer/engines/cpu/trainer")


class CtrlC:
    """Raise the signal when the given line of the training code is reached, counting from the start of a block."""

    def __init__(self, line):
        self.line, self.lines = line, 0

    def __enter__(self):
        sys.settrace(self._call)
        return self

    def __exit__(self, *error):
        sys.settrace(None)

    def _call(self, frame, event, argument):
        return self._line if any(part in frame.f_code.co_filename for part in TRAINING) else None

    def _line(self, frame, event, argument):
        self.lines += event == "line"
        if self.lines == self.line:
            self.lines += 1
            ctrl_c()
        return self._line


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody interrupts, and how many lines of the training code it takes."""
    session = tiny_session("majority", tmp_path_factory.mktemp("whole") / "run", **PLAN)
    with CtrlC(-1) as counter:
        finish(session)
    return session.run.folder, counter.lines


@pytest.mark.parametrize("place", range(40))
def test_ctrl_c_at_any_line_loses_nothing(tmp_path, whole, place):
    folder, lines = whole
    session = tiny_session("majority", tmp_path / "run", **PLAN)
    with CtrlC(1 + place * lines // 40), pytest.raises(KeyboardInterrupt):
        finish(session)
    session.save()  # as the command does
    finish(resume_session(tmp_path / "run"))
    assert_same_run(tmp_path / "run", folder)


MOMENTS = {
    "the gradients": "glassformer.training.trainer.Trainer.gradients",
    "the step": "glassformer.training.trainer.Trainer.averaged",
    "one array of the step": "glassformer.ops.adam_update",
    "the moving average": "glassformer.training.optimizers.EMA.update",
    "an evaluation": "glassformer.training.trainer.Trainer.evaluate",
    "a line of the metrics": "glassformer.runs.sinks.RunFolder.append",
    "the best parameters": "glassformer.runs.sinks.RunFolder.save_best",
    "a checkpoint": "glassformer.runs.sinks.RunFolder.save",
}


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """The run that nobody interrupts, on each engine."""
    folders = {}
    for engine in ("cpu", "numpy"):
        folders[engine] = tmp_path_factory.mktemp("wholes") / "run"
        with use_engine(engine):
            finish(tiny_session("majority", folders[engine], **PLAN))
    return folders


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_ctrl_c_in_the_middle_of(moment, after, engine, tmp_path, monkeypatch, wholes):
    with use_engine(engine):
        session = tiny_session("majority", tmp_path / "run", **PLAN)
        with monkeypatch.context() as patch:
            patch.setattr(MOMENTS[moment], _interrupted(MOMENTS[moment], after))
            with pytest.raises(KeyboardInterrupt):
                finish(session)
        session.save()
        finish(resume_session(tmp_path / "run"))
        assert_same_run(tmp_path / "run", wholes[engine])


def _interrupted(address, after):
    """The function at an address, with a signal before or after its second call."""
    right, calls = _found(address), []

    def wrong(*args, **settings):
        calls.append(args)
        if len(calls) == 2 and not after:
            ctrl_c()
        result = right(*args, **settings)
        if len(calls) == 2 and after:
            ctrl_c()
        return result

    return wrong


def _found(address):
    """What stands at a dotted address."""
    module, *names = address.split(".")
    found = __import__(module)
    for name in names:
        found = getattr(found, name, None) or sys.modules[f"{found.__name__}.{name}"]
    return found
