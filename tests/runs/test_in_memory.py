"""A training in memory: the bits of one with a folder and no file; written later, each step can be returned to."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from glassformer.core.errors import CheckpointError, ConfigError
from glassformer.runs.replay import frame_now, replay
from glassformer.runs.run import Ready, open_run
from glassformer.runs.start import new_session, start_session, write_session
from runs import TINY, assert_same_bits, assert_same_run, tiny_session

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
