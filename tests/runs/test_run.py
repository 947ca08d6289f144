"""Run folders: what they say, what they refuse, and what a full disk leaves of them."""

import errno
import itertools
import json
import os
import shutil

import pytest

from glassformer.core import files
from glassformer.core.errors import CheckpointError, ConfigError, ShapeError
from glassformer.runs.folder import HOLDER, LOCK, FolderLock
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session, resume_session
from glassformer.training import BEST, LATEST, checkpoint, load_checkpoint
from glassformer.training.trainer import final_params
from runs import are_same, assert_same_bits, edit_config, tiny_session, untimed


def take(session, count):
    """Take some steps and return their records."""
    return list(itertools.islice(session.steps(), count))


@pytest.fixture
def session(tmp_path):
    return tiny_session("majority", tmp_path / "run", steps=12, eval_every=4, save_every=3)


@pytest.mark.parametrize("task", ["majority", "counting", "sort", "dates", "lines", "text"])
def test_a_folder_says_what_was_trained_and_how(task, tmp_path):
    session = tiny_session(task, tmp_path / "run", steps=3, seed=5)
    opened = open_run(tmp_path / "run")
    assert opened == session.run
    assert opened.recipe.seed == 5
    assert opened.task_name == task
    assert opened.task().tokenizer.to_dict() == opened.tokenizer
    content = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert content["model"]["architecture"] == session.task.architecture
    assert not list((tmp_path / "run").glob("*.partial"))


def test_large_tokenizers_stand_beside_the_config_and_old_folders_still_open(tmp_path, monkeypatch):
    inside = tiny_session("dates", tmp_path / "inside", steps=2).run
    monkeypatch.setattr("glassformer.runs.folder.LARGE", 100)
    beside = tiny_session("dates", tmp_path / "beside", steps=2)
    content = json.loads((tmp_path / "beside" / "config.json").read_text(encoding="utf-8"))
    assert content["tokenizer"] == content["target_tokenizer"] == "tokenizers.json"
    opened = open_run(tmp_path / "beside")
    assert opened == beside.run
    assert (opened.tokenizer, opened.target_tokenizer) == (inside.tokenizer, inside.target_tokenizer)
    assert open_run(tmp_path / "inside") == inside
    assert not (tmp_path / "inside" / "tokenizers.json").exists()
    take(beside, 1)
    beside.save()
    assert take(resume_session(tmp_path / "beside"), 1)[0].step == 2


@pytest.mark.parametrize("damage", [None, "{", "3"])
def test_lost_or_damaged_tokenizers_are_named(damage, tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.runs.folder.LARGE", 100)
    tiny_session("dates", tmp_path / "run", steps=2)
    path = tmp_path / "run" / "tokenizers.json"
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(CheckpointError, match=r"tokenizers\.json (is damaged|cannot be read)"):
        open_run(tmp_path / "run")


def test_metrics_hold_one_line_per_step(session):
    records = take(session, 12)
    lines = session.run.metrics()
    assert [line["step"] for line in lines] == list(range(1, 13))
    for name in ("loss", "grad_norm"):
        assert [line[name] for line in lines] == [getattr(record, name) for record in records]
    assert [line["step"] for line in lines if "val_loss" in line] == [4, 8, 12]


@pytest.mark.skipif(os.name != "posix", reason="the permissions of POSIX")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_who_may_read_a_run_is_what_the_umask_says(mask, tmp_path):
    before = os.umask(mask)
    try:
        take(tiny_session("majority", tmp_path / "run", steps=2, eval_every=1), 2)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "latest.safetensors", "best.safetensors"} <= modes.keys()
    assert set(modes.values()) == {0o666 & ~mask}


def test_damaged_metrics_are_cut_back_to_the_checkpoint(session):
    take(session, 5)
    path = session.run.folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], lines[1][:-9] + b"\xff", *lines[2:], b'{"step": 6, "lo']))
    assert [line["step"] for line in session.run.metrics()] == [1, 3, 4, 5]
    resumed = resume_session(session.run.folder)
    assert resumed.notes == [f"2 damaged lines of {path} are left out"]
    assert [line["step"] for line in resumed.run.metrics()] == [1, 3]
    assert take(resumed, 1)[0].step == 4


def test_the_best_parameters_are_those_of_the_lowest_loss(tmp_path):
    session = tiny_session("majority", tmp_path / "run", steps=12, eval_every=1, lr=0.5, ema=0.5)
    kept = {}
    for record in session.steps():
        if record.is_best:
            kept = final_params(session.state, session.run.recipe)
    assert any(not line["best"] for line in session.run.metrics()), "a rate this high should make some steps worse"
    assert_same_bits(session.run.load_params(), kept)
    assert_same_bits(open_run(tmp_path / "run").load_params(BEST), kept)


def test_parameters_that_count_come_from_the_average(tmp_path):
    session = tiny_session("majority", tmp_path / "run", steps=4, eval_every=4, ema=0.5)
    take(session, 4)
    assert_same_bits(session.run.load_params(LATEST), session.state.ema["average"])
    assert not are_same(session.run.load_params(LATEST), session.state.params)


def test_the_latest_parameters_serve_where_there_are_no_best_yet(session):
    take(session, 3)
    assert not (session.run.folder / "best.safetensors").exists()
    assert_same_bits(session.run.load_params(), session.state.params)


def test_parts_without_parameters_come_back(tmp_path):
    session = tiny_session("sort", tmp_path / "run", steps=2, save_every=1)  # its head is tied to the embedding
    take(session, 2)
    state = resume_session(tmp_path / "run").state
    assert state.params.keys() == session.state.params.keys()
    assert state.params["head"] == {}
    session.model.loss(session.run.load_params(LATEST), session.task.train.batch(0, 2, 0))


def test_a_folder_with_a_run_is_refused(session):
    with pytest.raises(ConfigError, match=r"run exists already") as caught:
        tiny_session("majority", session.run.folder)
    assert f"--resume {session.run.folder}" in str(caught.value)


def test_other_folders_and_files_are_refused_and_what_a_killed_start_left_is_welcome(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("full", "file"):
        with pytest.raises(ConfigError, match="exists already") as caught:
            tiny_session("majority", tmp_path / name)
        assert "--resume" not in str(caught.value)
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"

    (tmp_path / "run").mkdir()
    for name in ("config.json.0badcafe.partial", LOCK, HOLDER):
        (tmp_path / "run" / name).write_text('{"for')
    take(tiny_session("majority", tmp_path / "run", steps=1), 1)


def test_a_folder_that_another_process_was_faster_to_take_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    other = FolderLock(tmp_path / "run")
    other.acquire()
    with pytest.raises(CheckpointError, match=r"run is being trained by process \d+ on "):
        tiny_session("majority", tmp_path / "run")
    assert sorted(os.listdir(tmp_path / "run")) == [HOLDER, LOCK]
    other.release()


def test_a_folder_without_a_run_is_refused(tmp_path):
    for path, why in ((tmp_path, r"has no config\.json"), (tmp_path / "nowhere", "does not exist")):
        with pytest.raises(CheckpointError, match=f"is not a run folder: it {why}"):
            open_run(path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"task": {"name": "sort"}}', '"text"', "\xff\xfe"])
def test_a_damaged_config_is_refused(session, content):
    (session.run.folder / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        open_run(session.run.folder)


def test_a_state_of_another_optimizer_is_noticed(session):
    take(session, 3)
    edit_config(session.run.folder, lambda content: content["recipe"].update(optimizer="lion"))
    with pytest.raises(ShapeError, match=r"unexpected optimizer\.square"):
        resume_session(session.run.folder, anyway=True)


def test_a_run_finds_its_data_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "prose.txt").write_text("one two three four five. " * 20)
    monkeypatch.chdir(tmp_path)
    run = new_session("text", tmp_path / "run", data="prose.txt", settings={"context": 8}).run
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert open_run(run.folder).task().held_out.count > 0


def test_of_two_sessions_the_one_that_came_last_goes_on(session):
    take(session, 1)
    session.save()
    one, two = (resume_session(session.run.folder) for _ in range(2))
    assert next(two.steps()).step == 2
    with pytest.raises(CheckpointError, match="another session holds"):
        next(one.steps())
    with pytest.raises(CheckpointError, match="another session holds"):
        one.save()
    take(two, 12)
    assert [line["step"] for line in two.run.metrics()] == list(range(1, 13))


def test_a_finished_run_is_free_and_can_still_be_saved(session):
    assert (session.run.folder / HOLDER).exists()
    take(session, 13)
    assert not (session.run.folder / HOLDER).exists()
    session.save()


def test_who_cannot_go_on_lets_the_folder_go(session):
    take(session, 3)
    folder = session.run.folder
    (folder / "latest.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="is damaged") as caught:
        resume_session(folder)
    assert caught.value.hint == "restore it from a copy"
    session.save()  # it has the folder still
    session.sink.lock.release()
    (folder / "latest.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="is damaged"):
        resume_session(folder)
    assert not (folder / HOLDER).exists()


def test_a_run_without_a_checkpoint_begins_anew_and_says_so(session):
    take(session, 2)
    assert resume_session(session.run.folder).notes == ["there is no checkpoint: 2 steps are taken again"]
    assert session.run.metrics() == []


def test_a_crash_is_told_when_a_run_goes_on(session):
    take(session, 3)
    folder = session.run.folder
    session.sink.lock.release()
    (folder / HOLDER).write_text('{"pid": 77, "host": "deep-thought", "since": "2026"}')
    (note,) = resume_session(folder).notes
    assert note.endswith(
        "was left locked by process 77 on deep-thought, since 2026, which crashed; its lock is taken over"
    )


def test_a_folder_that_vanishes_ends_the_run_with_an_error_and_does_not_come_back(session):
    steps = session.steps()
    next(steps)
    shutil.rmtree(session.run.folder)
    with pytest.raises(CheckpointError, match="was removed or renamed"):
        list(steps)
    with pytest.raises(CheckpointError, match="was removed or renamed"):
        session.save()
    assert not session.run.folder.exists()


def test_a_folder_that_vanishes_between_the_look_and_the_writing_does_not_come_back(session, monkeypatch):
    next(session.steps())
    monkeypatch.setattr(session.sink.lock, "check_held", lambda: shutil.rmtree(session.run.folder))
    with pytest.raises(CheckpointError, match=r"could not write .* No such file or directory"):
        session.save()
    assert not session.run.folder.exists()


def full(*args, **settings):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("module", "function"), [(checkpoint, "write_tensors"), (files, "flush")])
def test_a_full_disk_leaves_the_previous_checkpoint(session, monkeypatch, module, function):
    steps = session.steps()
    for _ in range(5):
        next(steps)
    before = {path.name: path.read_bytes() for path in session.run.folder.iterdir() if "safetensors" in path.name}
    monkeypatch.setattr(module, function, full)
    with pytest.raises(CheckpointError, match="the disk is full; the previous one is unchanged") as caught:
        next(steps)
    assert "free some space" in str(caught.value)
    after = {path.name: path.read_bytes() for path in session.run.folder.iterdir() if "safetensors" in path.name}
    assert after == before
    assert set(before) == {"latest.safetensors", "best.safetensors"}


def test_a_run_goes_on_from_there_when_there_is_space_again(session, tmp_path, monkeypatch):
    whole = tiny_session("majority", tmp_path / "whole", steps=12, eval_every=4, save_every=3)
    take(whole, 12)
    with monkeypatch.context() as patch:
        steps = session.steps()
        for _ in range(5):
            next(steps)
        patch.setattr(checkpoint, "write_tensors", full)
        with pytest.raises(CheckpointError):
            next(steps)
    resumed = resume_session(session.run.folder)
    assert resumed.state.step == 3
    take(resumed, 12)
    assert_same_bits(resumed.state.params, whole.state.params)
    assert untimed(session.run.folder) == untimed(whole.run.folder)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
def test_metrics_that_cannot_be_written_are_an_error_with_a_remedy(session):
    take(session, 3)
    latest = load_checkpoint(session.run.folder).arrays
    (session.run.folder / "metrics.jsonl").unlink()
    (session.run.folder / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl cannot be written: the disk is full"):
        take(session, 3)
    assert_same_bits(load_checkpoint(session.run.folder).arrays, latest)


def test_a_config_that_cannot_be_written_is_an_error_too(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"config\.json cannot be written: the disk is full"):
        tiny_session("majority", tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_how_a_model_runs_is_kept_beside_what_it_is(tmp_path):
    session = tiny_session("majority", tmp_path / "run", steps=1, attention_tile=4, remat=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["attention_tile"] == 4
    run = open_run(tmp_path / "run")
    assert run == session.run
    assert (run.execution.tile, run.execution.remat, run.under_jax) == (4, True, False)
    assert run.model.execution == session.trainer.model.execution == run.execution
    assert next(session.steps()).loss > 0
