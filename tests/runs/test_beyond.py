"""Runs that go on beyond their planned end, are taken in memory, or recorded: nothing before changes."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.core.errors import CheckpointError, ConfigError
from glassformer.runs import session as recording
from glassformer.runs.replay import frame_now, replay
from glassformer.runs.run import Ready, open_run
from glassformer.runs.session import BUDGET, MOST, Recording, open_recording, spacing
from glassformer.runs.sinks import RunFolder
from glassformer.runs.start import new_session, resume_session, start_session, write_session
from glassformer.training import SCHEDULES, load_checkpoint
from glassformer.training.trainer import TrainingState
from runs import TINY, assert_same_bits, assert_same_run, command, finish, tiny_session, untimed

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


def test_a_run_goes_on_with_the_engine_that_began_it(tmp_path, monkeypatch, unseen_figures):
    result = command("train", "counting", "--steps", 2, "--engine", "numpy", "--out", tmp_path / "run", "--json")
    assert result.code == 0, result.err
    monkeypatch.setattr("glassformer.core.dispatch._default", None)
    monkeypatch.delenv("GLASSFORMER_ENGINE", raising=False)
    result = command("train", "--resume", tmp_path / "run", "--json")
    assert result.code == 0
    from glassformer.core.dispatch import engine

    assert engine() == "numpy"


SETTINGS = {**TINY["sort"], "steps": 6, "eval_every": 3, "ema": 0.9}


def test_it_has_the_bits_of_a_run_with_a_folder(tmp_path, monkeypatch):
    written = tiny_session("majority", tmp_path / "run", steps=4, eval_every=2, ema=0.9)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    session = start_session(replace(written.run, folder=Path("majority"), ready=Ready(written.task)))
    assert session.run.recipe.shards == written.run.recipe.shards
    with pytest.raises(CheckpointError, match="no best parameters are kept yet"):
        session.load_params()
    list(session.steps())
    write = {"not_finite": lambda state: None, "save": lambda folder, state: folder.mkdir()}
    monkeypatch.setattr(session.trainer, "parts", SimpleNamespace(needed=True, **write))  # as on several devices
    session.save()
    assert sorted(tmp_path.rglob("*")) == before
    list(written.steps())
    assert_same_bits(session.load_params(), written.load_params())
    assert [line["loss"] for line in session.metrics()] == [line["loss"] for line in written.run.metrics()]


@pytest.mark.usefixtures("numpy_engine")
def test_what_is_written_later_is_the_run_that_would_have_been_written(tmp_path):
    session = new_session("sort", settings=SETTINGS, seed=3)
    list(session.steps())
    assert list(tmp_path.iterdir()) == []
    run = write_session(session, tmp_path / "late")
    other = new_session("sort", tmp_path / "early", settings=SETTINGS, seed=3, recorded=True)
    list(other.steps())
    assert run.folder == tmp_path / "late"
    assert_same_run(run.folder, other.run.folder)
    assert open_run(run.folder).config == other.run.config


@pytest.mark.usefixtures("numpy_engine")
def test_every_step_of_it_can_be_returned_to(tmp_path):
    session = new_session("sort", settings=SETTINGS)
    frames = [frame_now(session)]
    for _ in session.steps():
        frames.append(frame_now(session))
    found = replay(write_session(session, tmp_path / "run").folder)
    for frame, again in zip(frames, found.frames(range(7)), strict=True):
        assert frame.step == again.step
        assert_same_bits(frame.params, again.params)
        assert_same_bits(frame.trained.params, again.trained.params)
        assert frame.metrics.get("loss") == again.metrics.get("loss")


@pytest.mark.usefixtures("numpy_engine")
def test_one_that_was_stopped_half_way_is_written_as_far_as_it_came(tmp_path):
    session = new_session("sort", settings=SETTINGS)
    next(iter(session.steps()))
    first, second = write_session(session, tmp_path / "run"), write_session(session, tmp_path / "run")
    assert (first.folder.name, second.folder.name) == ("run", "run-2")
    assert [line["step"] for line in open_run(first.folder).metrics()] == [1]


@pytest.mark.usefixtures("numpy_engine")
def test_nothing_is_written_of_one_that_took_no_step(tmp_path):
    with pytest.raises(ConfigError, match="no step was taken yet"):
        write_session(new_session("sort", settings=SETTINGS), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def state(numbers):
    moments = {"m": np.zeros(numbers, np.float32), "v": np.zeros(numbers, np.float32)}
    return TrainingState(0, {"w": np.zeros(numbers, np.float32)}, moments)


def test_the_states_of_a_model_of_800_000_parameters_fit_into_50_mb():
    every, run = spacing(state(800_000), 2000), SimpleNamespace(recipe=SimpleNamespace(steps=2000))
    kept = [step for step in range(1, 2001) if Recording(RunFolder(run), every).is_due(step)]
    assert kept == [400, 800, 1200, 1600]
    assert len(kept) * 3 * 4 * 800_000 <= BUDGET < 50_000_000


@pytest.mark.parametrize(("numbers", "steps", "every"), [(10, 2000, 31), (10, 20, 1), (10**7, 2000, 2000)])
def test_small_models_have_more_states_and_large_ones_none_but_the_first(numbers, steps, every):
    assert spacing(state(numbers), steps) == every
    assert steps // every <= MOST + 1


def test_a_run_of_several_processes_is_not_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "processes", lambda: 2)
    with pytest.raises(ConfigError, match="several processes is not recorded"):
        open_recording(RunFolder(SimpleNamespace(folder=tmp_path)), state(1), new=True)


def test_the_command_records_and_resume_takes_no_such_option(tmp_path):
    folder = str(tmp_path / "run")
    settings = [part for name, value in TINY["sort"].items() for part in ("--set", f"{name}={value}")]
    assert command("train", "sort", "--out", folder, "--steps", "4", "--record", "--json", *settings).code == 0
    assert [path.name for path in sorted((tmp_path / "run" / "recording").iterdir())] == [
        f"step-00000000{step}.safetensors" for step in (1, 2, 3)
    ]
    refused = command("train", "--resume", folder, "--record")
    assert refused.code != 0
    assert "--resume continues a run with its own settings" in refused.err
