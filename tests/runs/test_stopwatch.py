"""How fast a run goes, and how long it will take."""

import pytest

from glassformer.runs.stopwatch import Stopwatch
from runs import tiny_session


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number to set."""
    now = [100.0]
    monkeypatch.setattr("glassformer.runs.stopwatch.time.perf_counter", lambda: now[0])
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
    now[0] = 160.0  # loading and compiling
    clock.add(taken(record, 11))
    assert clock.remaining is None
    clock.compiling = 50.0
    now[0] = 162.0
    clock.add(taken(record, 12))
    assert clock.seconds == 62.0
    assert clock.remaining == 2.0 * 8
    now[0], clock.compiling = 170.0, 56.0  # 2 s for the step, 6 s in the compiler
    clock.add(taken(record, 13))
    assert clock.remaining == 2.0 * 7


def test_compiling_does_not_count_as_training_after_the_first_step(now, record):
    clock = Stopwatch(total=20)
    clock.add(taken(record, 1))
    now[0], clock.compiling = 104.0, 4.0
    assert clock.tokens_per_second == record.tokens / 4.0
    clock.add(taken(record, 2))
    now[0] = 105.0
    assert clock.tokens_per_second == 2 * record.tokens / 1.0
