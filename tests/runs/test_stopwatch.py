"""How fast a run goes, and how long it will take."""

from glassformer.runs.stopwatch import Stopwatch
from runs import tiny_session


def test_the_stopwatch_knows_how_long_it_will_take(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("glassformer.runs.stopwatch.time.perf_counter", lambda: now[0])
    clock = Stopwatch(total=20, done=10)
    assert clock.remaining == 0.0
    record = next(tiny_session("majority", tmp_path / "run").steps())
    object.__setattr__(record, "step", 12)
    clock.add(record)
    now[0] = 104.0
    assert clock.seconds == 4.0
    assert clock.remaining == 4.0 / 2 * 8
    assert clock.tokens_per_second == record.tokens / 4.0


def test_a_first_step_that_is_nearly_all_compiling_does_not_look_fast(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("glassformer.runs.stopwatch.time.perf_counter", lambda: now[0])
    clock = Stopwatch(total=20)
    record = next(tiny_session("majority", tmp_path / "run").steps())
    clock.add(record)
    now[0], clock.compiling = 104.0, 4.0
    assert clock.tokens_per_second == record.tokens / 4.0
    object.__setattr__(record, "step", 2)
    clock.add(record)
    now[0] = 105.0
    assert clock.tokens_per_second == 2 * record.tokens / 1.0
