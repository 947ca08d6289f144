"""A training in memory has the bits of one with a folder; written later, every step of it can be returned to."""

import pytest

from glassformer.api.learn import replay
from glassformer.core.errors import ConfigError
from glassformer.runs.replay import frame_now
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session, write_session
from runs import TINY, assert_same_bits, assert_same_run

pytestmark = pytest.mark.usefixtures("numpy_engine")
SETTINGS = {**TINY["sort"], "steps": 6, "eval_every": 3, "ema": 0.9}


def test_what_is_written_later_is_the_run_that_would_have_been_written(tmp_path):
    trial = new_session("sort", settings=SETTINGS, seed=3)
    list(trial.steps())
    assert list(tmp_path.iterdir()) == []
    run = write_session(trial, tmp_path / "late")
    other = new_session("sort", tmp_path / "early", settings=SETTINGS, seed=3, recorded=True)
    list(other.steps())
    assert run.folder == tmp_path / "late"
    assert_same_run(run.folder, other.run.folder)
    assert open_run(run.folder).config == other.run.config


def test_every_step_of_it_can_be_returned_to(tmp_path):
    trial = new_session("sort", settings=SETTINGS)
    frames = [frame_now(trial)]
    for _ in trial.steps():
        frames.append(frame_now(trial))
    found = replay(write_session(trial, tmp_path / "run").folder)
    for frame, again in zip(frames, found.frames(range(7)), strict=True):
        assert frame.step == again.step
        assert_same_bits(frame.params, again.params)
        assert_same_bits(frame.trained.params, again.trained.params)
        assert frame.metrics.get("loss") == again.metrics.get("loss")


def test_one_that_was_stopped_half_way_is_written_as_far_as_it_came(tmp_path):
    trial = new_session("sort", settings=SETTINGS)
    next(iter(trial.steps()))
    first, second = write_session(trial, tmp_path / "run"), write_session(trial, tmp_path / "run")
    assert (first.folder.name, second.folder.name) == ("run", "run-2")
    assert [line["step"] for line in open_run(first.folder).metrics()] == [1]


def test_nothing_is_written_of_one_that_took_no_step(tmp_path):
    with pytest.raises(ConfigError, match="no step was taken yet"):
        write_session(new_session("sort", settings=SETTINGS), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
