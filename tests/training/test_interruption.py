"""Ctrl-C, as a real signal: what must not be left half done is finished first, and a run loses nothing."""

import signal
import sys
import threading

import pytest

from glassformer.engine import use_engine
from glassformer.training.interruption import uninterrupted
from glassformer.training.session import resume_session
from runs import assert_same_run, tiny_session

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go elsewhere"
)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_an_interruption_waits_until_the_block_is_done():
    done = []

    def work():
        with uninterrupted():
            ctrl_c()
            done.append("first half")
            ctrl_c()  # impatience changes nothing
            done.append("second half")
        done.append("afterwards")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first half", "second half"]


def test_without_an_interruption_nothing_happens():
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_an_error_comes_out_and_the_signal_is_as_before():
    before = signal.getsignal(signal.SIGINT)

    def fails():
        ctrl_c()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), uninterrupted():
        fails()
    assert signal.getsignal(signal.SIGINT) is before


def test_blocks_inside_of_blocks_wait_for_the_outermost():
    done = []

    def work():
        with uninterrupted():
            with uninterrupted():
                ctrl_c()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


@pytest.fixture
def handled():
    """Another handler than Python's own; what it was told of."""
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    yield calls
    signal.signal(signal.SIGINT, before)


def test_a_handler_of_ones_own_is_told_once_at_the_end(handled):
    with uninterrupted():
        ctrl_c()
        ctrl_c()
        assert handled == []
    assert handled == [signal.SIGINT]


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_never_interrupted_and_change_no_handler():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


# --- a run -----------------------------------------------------------------------------------------------------------

PLAN = {"steps": 6, "eval_every": 3, "save_every": 2, "dropout": 0.1, "ema": 0.9}


def finish(session):
    for _ in session.steps():
        pass


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
        return self._line if "/glassformer/training/" in frame.f_code.co_filename else None

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
    "the gradients": "glassformer.training.loop.loss_and_grads",
    "the step": "glassformer.training.optimizer.Optimizer.in_place",
    "one array of the step": "glassformer.ops.adam_update",
    "the moving average": "glassformer.training.ema.EMA.update",
    "an evaluation": "glassformer.training.session.evaluate",
    "a line of the metrics": "glassformer.training.run.Run.append",
    "the best parameters": "glassformer.training.run.Run.save_best",
    "a checkpoint": "glassformer.training.run.Run.save",
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_ctrl_c_in_the_middle_of(moment, after, engine, tmp_path, monkeypatch):
    with use_engine(engine):
        finish(tiny_session("majority", tmp_path / "whole", **PLAN))
        session = tiny_session("majority", tmp_path / "run", **PLAN)
        with monkeypatch.context() as patch:
            patch.setattr(MOMENTS[moment], _interrupted(MOMENTS[moment], after))
            with pytest.raises(KeyboardInterrupt):
                finish(session)
        session.save()
        finish(resume_session(tmp_path / "run"))
        assert_same_run(tmp_path / "run", tmp_path / "whole")


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
