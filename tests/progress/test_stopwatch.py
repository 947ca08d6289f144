"""How fast a run goes, how long it will take, and how long compilers took."""

import logging

import pytest

from glassformer.core import dispatch
from glassformer.progress.stopwatch import Stopwatch, compilation, timing_compilers
from oracles import require
from runs import tiny_session

CPU = dispatch.engines().find("cpu")


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number to set."""
    now = [100.0]
    monkeypatch.setattr("glassformer.progress.stopwatch.time.perf_counter", lambda: now[0])
    return now


@pytest.fixture
def record(tmp_path):
    return next(tiny_session("majority", tmp_path / "run").steps())


def taken(record, step):
    object.__setattr__(record, "step", step)
    return record


def test_the_time_left_is_that_of_the_steps_after_the_first(now, record):
    clock = Stopwatch(total=20, done=10)
    assert clock.remaining is None
    clock.begin_compiling()
    now[0] = 160.0  # loading and compiling
    clock.add(taken(record, 11))
    assert clock.remaining is None
    now[0] = 162.0
    clock.add(taken(record, 12))
    assert clock.seconds == 62.0
    assert clock.remaining == 2.0 * 8
    now[0] = 162.5
    assert clock.remaining == 2.0 * 8 - 0.5
    now[0] = 162.0
    clock.begin_compiling()
    now[0] = 168.0
    clock.end_compiling()
    now[0] = 170.0  # 2 s for the step, 6 s in the compiler
    clock.add(taken(record, 13))
    assert clock.remaining == 2.0 * 7


def test_compiling_does_not_count_as_training_after_the_first_step(now, record):
    clock = Stopwatch(total=20)
    clock.add(taken(record, 1))
    clock.begin_compiling()
    now[0] = 104.0
    clock.end_compiling()
    assert clock.tokens_per_second == record.tokens / 4.0
    clock.add(taken(record, 2))
    now[0] = 105.0
    assert clock.tokens_per_second == 2 * record.tokens / 1.0


def test_what_is_compiled_for_something_else_is_counted_with_it(now):
    clock = Stopwatch()
    clock.begin_compiling()
    now[0] += 2.0
    clock.begin_compiling()
    now[0] += 1.0
    clock.end_compiling()
    assert (clock.is_compiling, clock.compiling, clock.kernels) == (True, 3.0, 1)
    clock.end_compiling()
    now[0] += 9.0
    clock.begin_compiling()
    now[0] += 0.5
    clock.end_compiling()
    clock.end_compiling()  # more than begun
    assert (clock.is_compiling, clock.compiling, clock.kernels) == (False, 3.5, 2)
    assert compilation(clock, CPU) == "compiling kernels, number 2; they are cached for the next start"


def test_kernels_are_counted_as_numba_compiles_them():
    numba, clock, said = require("numba"), Stopwatch(), []
    with timing_compilers(clock, CPU, said.append):
        numba.njit(lambda x: x + 1)(1)
        numba.njit(lambda x: x + 3)(1)
    assert clock.kernels == 2
    assert clock.compiling > 0
    assert not clock.is_compiling
    assert said == ["compiling kernels; they are cached for the next start"]
    numba.njit(lambda x: x + 2)(1)
    assert clock.kernels == 2, "nobody looks any more"


def test_the_engine_need_not_say_what_is_shown(caplog):
    logger = logging.getLogger("glassformer")
    with timing_compilers(Stopwatch(), CPU):
        logger.warning("compiling kernels for this machine")
        logger.warning("softmax was edited")
    logger.warning("compiling kernels again")
    assert caplog.messages == ["softmax was edited", "compiling kernels again"]


def test_jax_compiles_a_step(jax, record):
    clock, said = Stopwatch(2), []
    with timing_compilers(clock, dispatch.engines().find("jax"), said.append):
        assert clock.is_compiling
        clock.add(record)
    assert not clock.is_compiling
    assert said == ["compiling the step"]
