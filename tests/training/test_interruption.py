"""Ctrl-C, as a real signal: what must not be left half done is finished first."""

import signal
import threading

import pytest

from glassformer.training.interruption import Terminated, heeding_termination, uninterrupted

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go elsewhere"
)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


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


def test_without_an_interruption_nothing_happens_and_an_error_comes_out():
    before = signal.getsignal(signal.SIGINT)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()

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


def test_a_handler_of_ones_own_is_told_once_and_an_ignored_signal_stays_ignored(handled):
    with uninterrupted():
        ctrl_c()
        ctrl_c()
        assert handled == []
    assert handled == [signal.SIGINT]

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


def test_sigterm_ends_a_block_once_and_is_as_before_afterwards():
    before, done = signal.getsignal(signal.SIGTERM), []
    assert before == signal.SIG_DFL

    def work():
        with heeding_termination():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)  # a scheduler that repeats itself
                done.append("saved")

    with pytest.raises(Terminated):
        work()
    assert done == ["saved"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_waits_for_what_must_not_be_interrupted():
    done = []

    def work():
        with heeding_termination():
            with uninterrupted():
                signal.raise_signal(signal.SIGTERM)
                done.append("whole")
            done.append("afterwards")

    with pytest.raises(Terminated):
        work()
    assert done == ["whole"]


def test_who_has_a_handler_for_sigterm_keeps_it():
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    try:
        with heeding_termination():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert calls == [signal.SIGTERM]
