"""Contenders in processes of their own: answers, failures, and an end."""

import os
from pathlib import Path

import pytest

from glassformer.bench.process import ContenderError, Process, call, started
from glassformer.bench.timing import Race
from glassformer.bench.worker import COLD

HERE = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}


def counter(name="counter", **settings):
    return Process(name, "contenders:Counter", settings, **HERE)


def test_a_function_runs_in_a_fresh_process_and_what_it_prints_is_no_answer():
    assert call("contenders:add", {"a": 2, "b": 3}, **HERE) == 5


def test_variables_reach_the_process():
    assert call("contenders:variable", {"name": "GREETING"}, GREETING="hello", **HERE) == "hello"
    assert call("contenders:variable", {"name": "JAX_PLATFORMS"}, **HERE) == "cpu"


def test_a_contender_takes_the_steps_it_is_asked_for_and_one_that_is_not_counted():
    with counter(by=2) as process:
        process.build()
        seconds = process.run(3)
        assert len(seconds) == 3
        assert all(second >= 0 for second in seconds)
        assert process.facts["count"] == 2 * 4
        assert process.facts["process"] != os.getpid()
        process.run(1)
        cold = seconds[-1] < COLD  # but on a machine that let it wait for long
        assert process.facts["count"] == 2 * (5 + cold)


def test_the_time_of_the_first_part_is_that_of_the_race_alone():
    with counter() as process:
        process.build()
        process.first = [9.0, 9.0]  # from warming up
        steps = process.run(2)
        assert process.first == [9.0, 9.0, 0.25, 0.25]
        assert process.seconds_to_first(Race({"counter": [steps]})) == 0.25


def test_a_failure_is_told_with_what_the_process_said():
    with pytest.raises(ContenderError, match="contenders:fail failed: ValueError: too bad") as caught:
        call("contenders:fail", {"message": "too bad\nsecond line"}, **HERE)
    assert "second line" not in caught.value.fact
    assert "ValueError" in caught.value.hint


def test_a_process_that_dies_is_told_with_its_code():
    with pytest.raises(ContenderError, match="ended with code 7"):
        call("contenders:leave", {"code": 7}, **HERE)


def test_a_process_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr("glassformer.bench.process.PATIENCE", 0.5)
    with pytest.raises(ContenderError, match="the process of contenders:hang ended"):
        call("contenders:hang", {}, **HERE)


def test_a_peer_that_fails_is_left_out_and_ours_is_not():
    notes, talk = [], []
    peer, ours = (Process(name, "contenders:Failing", {}, **HERE) for name in ("peer", "glassformer, broken"))
    with counter() as good, peer, ours:
        assert started([good, peer], notes, talk.append) == [good]
        assert notes == ["peer failed: ValueError: no step; it was left out"]
        assert talk == ["starting: counter", "starting: peer"]
        with pytest.raises(ContenderError, match="glassformer, broken failed"):
            started([ours], notes, talk.append)


def test_closing_ends_the_process():
    process = counter()
    process.build()
    number = process._process.pid
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
