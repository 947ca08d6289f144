"""Runs that go on beyond their planned end: nothing before it changes, and what comes after is said."""

import itertools

import pytest

from glassformer.core.errors import ConfigError
from glassformer.runs.run import open_run
from glassformer.runs.start import resume_session
from glassformer.training import SCHEDULES, load_checkpoint
from runs import assert_same_bits, assert_same_run, command, finish, tiny_session, untimed

PLAN = {"steps": 6, "eval_every": 3, "save_every": 2, "warmup": 2, "dropout": 0.1, "ema": 0.9}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_goes_on_beyond_its_end_bit_for_bit(schedule, tmp_path):
    planned = finish(tiny_session("majority", tmp_path / "planned", **PLAN, schedule=schedule))
    before, old_lines = planned.state, untimed(tmp_path / "planned")
    longer = resume_session(tmp_path / "planned", steps=10)
    assert_same_bits(longer.state.params, before.params)
    assert_same_bits(longer.state.optimizer, before.optimizer)
    finish(longer)
    lines = untimed(tmp_path / "planned")
    assert lines[:6] == old_lines
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert all(line["lr"] > 0 for line in lines)
    # One that knew from the start where its schedule ends takes the very same steps.
    settings = {**PLAN, "steps": 10, "decay_steps": longer.run.recipe.decay_steps, "schedule": schedule}
    whole = finish(tiny_session("majority", tmp_path / "whole", **settings))
    assert_same_bits(longer.state.params, whole.state.params)
    assert_same_bits(longer.state.ema, whole.state.ema)


def test_going_on_in_two_goes_is_going_on_in_one(tmp_path):
    for name in ("two", "one"):
        finish(tiny_session("majority", tmp_path / name, **PLAN))
    finish(resume_session(tmp_path / "two", steps=9))
    finish(resume_session(tmp_path / "two", steps=12))
    finish(resume_session(tmp_path / "one", steps=12))
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_an_interrupted_longer_run_goes_on_with_its_new_plan(tmp_path):
    for name in ("cut", "whole"):
        finish(tiny_session("majority", tmp_path / name, **PLAN))
    finish(resume_session(tmp_path / "whole", steps=12))
    list(itertools.islice(resume_session(tmp_path / "cut", steps=12).steps(), 3))
    assert open_run(tmp_path / "cut").recipe.steps == 12
    finish(resume_session(tmp_path / "cut"))
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize("steps", [1, 5, 6])
def test_fewer_steps_than_were_taken_are_refused_and_nothing_changes(steps, tmp_path):
    finish(tiny_session("majority", tmp_path / "run", **PLAN))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ConfigError, match=f"has taken 6 steps already, and steps={steps} asks for no more") as caught:
        resume_session(tmp_path / "run", steps=steps)
    assert "ask for more than 6 in all" in caught.value.hint
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_run_may_end_before_its_plan(tmp_path):
    list(itertools.islice(tiny_session("majority", tmp_path / "run", **{**PLAN, "steps": 20}).steps(), 4))
    finish(resume_session(tmp_path / "run", steps=7))
    assert load_checkpoint(tmp_path / "run").meta["step"] == 7
    whole = tiny_session("majority", tmp_path / "whole", **{**PLAN, "steps": 20})
    list(itertools.islice(whole.steps(), 7))
    assert_same_bits(resume_session(tmp_path / "run").state.params, whole.state.params)


def test_patience_begins_anew(tmp_path):
    session = finish(tiny_session("majority", tmp_path / "run", **{**PLAN, "steps": 9, "lr": 0.0}, patience=1))
    assert session.state.step == 6  # nothing improved after the first evaluation
    assert list(resume_session(tmp_path / "run").steps()) == []
    assert finish(resume_session(tmp_path / "run", steps=20)).state.step == 9


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_run_goes_on_with_the_engine_that_began_it(tmp_path, monkeypatch, unseen_figures):
    result = command("train", "counting", "--steps", 2, "--engine", "numpy", "--out", tmp_path / "run", "--json")
    assert result.code == 0, result.err
    monkeypatch.setattr("glassformer.core.dispatch._default", None)
    monkeypatch.delenv("GLASSFORMER_ENGINE", raising=False)
    result = command("train", "--resume", tmp_path / "run", "--json")
    assert result.code == 0
    from glassformer.core.dispatch import engine

    assert engine() == "numpy"
