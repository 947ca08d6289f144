"""The files of a run folder: every change of config.json is found, damaged metrics are left out, one session writes."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from glassformer.core.errors import CheckpointError, ConfigError, GlassformerError
from glassformer.core.files import new_folder
from glassformer.runs.folder import HOLDER, LOCK, FolderLock, Holder, checksum, read_metrics
from glassformer.runs.run import open_run
from runs import command, edit_config, tiny_session


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_session("lines", tmp_path_factory.mktemp("config") / "run", steps=2).run.folder


def test_every_flipped_bit_is_found_or_harmless(folder):
    path, rng = folder / "config.json", random.Random(0)
    whole, meant = path.read_bytes(), open_run(folder)
    try:
        for _ in range(200):
            place, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                found = open_run(folder)
            except CheckpointError:
                continue
            assert found.to_dict() == meant.to_dict()
    finally:
        path.write_bytes(whole)


def test_an_edited_config_is_refused_until_its_checksum_is_removed(folder):
    path = folder / "config.json"
    whole = path.read_text()
    try:
        path.write_text(whole.replace('"steps": 2', '"steps": 3'))
        with pytest.raises(CheckpointError, match=r"config\.json is damaged, or was edited") as caught:
            open_run(folder)
        assert "remove its line sha256" in str(caught.value)
        result = command("eval", folder)
        assert result.code == 1
        edit_config(folder, lambda content: None)
        assert open_run(folder).recipe.steps == 3
    finally:
        path.write_text(whole)


def test_data_may_be_moved_once_the_checksum_is_removed_and_of_older_runs_at_once(folder):
    path = folder / "config.json"
    whole = path.read_text()
    content = json.loads(whole)
    content["task"]["options"]["data"] = "elsewhere.txt"
    try:
        path.write_text(json.dumps(content))
        with pytest.raises(CheckpointError, match="its checksum does not match"):
            open_run(folder)
        edit_config(folder, lambda content: None)
        assert open_run(folder).task_options["data"] == "elsewhere.txt"
        older = {**json.loads(whole), "format": 1}
        older.pop("sha256")
        older["sha256"] = checksum(older)
        older["task"]["options"]["data"] = "elsewhere.txt"
        path.write_text(json.dumps(older))
        assert open_run(folder).task_options["data"] == "elsewhere.txt"
    finally:
        path.write_text(whole)


WRONG = {
    "options of a list": lambda content: content["task"].update(options=[1]),
    "a name of a number": lambda content: content["task"].update(name=3),
    "a task of text": lambda content: content.update(task="sort"),
    "an option of text": lambda content: content["task"]["options"].update(seed="x"),
    "a model of a list": lambda content: content.update(model=[1]),
    "a base of a number": lambda content: content.update(base=5),
    "no tokenizer": lambda content: content.update(tokenizer=None),
    "steps of text": lambda content: content["recipe"].update(steps="x"),
    "own files of numbers": lambda content: content.update(own=[1]),
    "data of a number": lambda content: content["task"]["options"].update(data=3),
    "another format": lambda content: content.update(format=3),
    "cores of text": lambda content: content["record"].update(cores="x"),
    "no cores": lambda content: content["record"].update(cores=0),
    "versions of numbers": lambda content: content["record"].update(versions={"numpy": 2}),
    "a record of text": lambda content: content.update(record="x"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_makes_no_sense_is_refused_in_a_sentence_with_or_without_a_checksum(folder, wrong):
    path = folder / "config.json"
    whole = path.read_text()
    try:
        edit_config(folder, WRONG[wrong])
        with pytest.raises((CheckpointError, ConfigError, GlassformerError)):
            open_run(folder).task()
    finally:
        path.write_text(whole)


def test_a_config_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        open_run(tmp_path)


LINES = [{"step": 1, "loss": 2.0, "lr": 0.1}, {"step": 2, "loss": None, "val_loss": 1.5, "best": True, "accuracy": 0.5}]


def test_lines_come_back(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == ([], 0)
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    assert read_metrics(tmp_path / "metrics.jsonl") == (LINES, 0)


DAMAGED = {
    "cut off": b'{"step": 3, "lo',
    "no text": b"\xff\xfe",
    "zeros": b"\0" * 100,
    "a number": b"12",
    "empty": b"{}",
    "no loss": b'{"step": 3}',
    "no step": b'{"loss": 3.0}',
    "a step of text": b'{"step": "3", "loss": 1.0}',
    "a step that is none": b'{"step": true, "loss": 1.0}',
    "a step before the first": b'{"step": -3, "loss": 1.0}',
    "a loss of text": b'{"step": 3, "loss": "1.0"}',
    "seconds of a list": b'{"step": 3, "loss": 1.0, "seconds": []}',
    "an evaluation that is not judged": b'{"step": 3, "loss": 1.0, "val_loss": 1.0}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_is_no_line_of_a_step_is_left_out_and_counted(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    first, second = (json.dumps(line).encode() for line in LINES)
    path.write_bytes(b"\n".join([first, DAMAGED[damage], second, b""]))
    assert read_metrics(path) == (LINES, 1)


needs_posix = pytest.mark.skipif(os.name != "posix", reason="the system has no forks and pipes")
HOLD = """import sys, time
from pathlib import Path
from glassformer.runs.folder import FolderLock

lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(100)
"""


@pytest.fixture
def foreign(tmp_path):
    """Another process that holds the lock of a folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def leave(folder, **changes):
    """Leave the name of a holder behind, as a crash does."""
    holder = Holder(os.getpid(), socket.gethostname(), "2026-01-01T00:00:00+00:00")
    (folder / HOLDER).write_text(json.dumps(holder._replace(**changes)._asdict()))


def test_a_lock_names_its_holder_and_is_free_when_let_go(tmp_path):
    lock = FolderLock(tmp_path)
    assert lock.acquire() is None
    holder = json.loads((tmp_path / HOLDER).read_text())
    assert (holder["pid"], holder["host"]) == (os.getpid(), socket.gethostname())
    assert holder["since"].endswith("+00:00")
    lock.check_held()
    lock.release()
    lock.release()
    assert not (tmp_path / HOLDER).exists()
    lock.check_held()  # takes it again
    assert lock.is_held()
    del lock
    assert not (tmp_path / HOLDER).exists()  # nobody could have let it go any more


def test_another_process_is_named_and_refused_until_it_is_killed(tmp_path, foreign):
    (tmp_path / "latest.safetensors.0badcafe.partial").write_text("being written")
    named = f"is being trained by process {foreign.pid} on {socket.gethostname()}, since 20"
    with pytest.raises(CheckpointError, match=named) as found:
        FolderLock(tmp_path).acquire()
    assert "hint: wait until it ends" in str(found.value)
    assert (tmp_path / "latest.safetensors.0badcafe.partial").exists()
    (tmp_path / HOLDER).unlink()  # it has the lock, and has not yet said who it is
    with pytest.raises(CheckpointError, match="is being trained by another process"):
        FolderLock(tmp_path).acquire()
    leave(tmp_path, pid=foreign.pid)
    foreign.kill()
    foreign.wait()
    assert FolderLock(tmp_path).acquire().pid == foreign.pid


def test_what_a_crash_left_is_taken_over_and_cleaned_up(tmp_path):
    leave(tmp_path, pid=123)
    (tmp_path / "best.safetensors.0badcafe.partial").write_text("half a checkpoint")
    lock = FolderLock(tmp_path)
    assert lock.acquire().pid == 123
    assert sorted(os.listdir(tmp_path)) == [HOLDER, LOCK]
    assert json.loads((tmp_path / HOLDER).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"pid": 3}', b"[" * 4000])
def test_a_lock_that_names_nobody_is_free(tmp_path, content):
    (tmp_path / HOLDER).write_bytes(content)
    assert FolderLock(tmp_path).acquire() is None


def test_what_version_0_2_left_in_its_lock_is_free(tmp_path):
    (tmp_path / LOCK).write_text('{"pid": 1, "host": "ada", "since": "2026", "place": null}')
    lock = FolderLock(tmp_path)
    assert lock.acquire() is None
    lock.check_held()


@needs_posix
@pytest.mark.parametrize("name", [LOCK, HOLDER, "metrics.jsonl", "latest.safetensors", "recording/step-000000001"])
def test_nothing_is_written_where_a_link_or_a_pipe_leads_elsewhere(tmp_path, name):
    outside, link = tmp_path / "outside", tmp_path / "run" / name
    outside.write_text("mine")
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    with pytest.raises(CheckpointError, match=rf"{name} is a symbolic link, and a run(.|\n)*hint: remove it"):
        FolderLock(tmp_path / "run").acquire()
    assert outside.read_text() == "mine"
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(CheckpointError, match=f"{name} is a pipe or a device"):
        FolderLock(tmp_path / "run").acquire()
    link.unlink()
    (tmp_path / "way").symlink_to(tmp_path / "run")
    FolderLock(tmp_path / "way").acquire()  # the user named it


def test_a_second_session_takes_it_from_the_first(tmp_path):
    first, second = FolderLock(tmp_path), FolderLock(tmp_path / ".." / tmp_path.name)
    first.acquire()
    with pytest.raises(CheckpointError, match=f"is being trained by process {os.getpid()}"):
        second.acquire(new=True)
    second.acquire()
    second.check_held()
    with pytest.raises(CheckpointError, match="another session holds"):
        first.check_held()
    second.release()
    with pytest.raises(CheckpointError, match="nothing more is written"):
        first.check_held()  # in vain: the run went on without it
    second.check_held()
    third = FolderLock(tmp_path)
    third.acquire()
    third.hand_back()
    second.check_held()
    FolderLock(tmp_path).acquire()
    with pytest.raises(CheckpointError, match="nothing more is written"):
        second.check_held()


def test_a_folder_that_is_gone_or_changed_hands_is_noticed(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    lock = FolderLock(folder)
    lock.acquire()
    (folder / HOLDER).unlink()
    with pytest.raises(CheckpointError, match="another session holds"):
        lock.check_held()
    leave(folder)
    with pytest.raises(CheckpointError, match="another session holds"):
        lock.check_held()
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match="was removed or renamed"):
        lock.check_held()
    folder.mkdir()
    FolderLock(folder).acquire(new=True)  # nobody has what is new


def test_a_folder_that_cannot_be_written_to_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(CheckpointError, match=r"lock cannot be written: No such file"):
        FolderLock(tmp_path / "nowhere").acquire()


# JAX, which other tests load, warns of a fork; what is forked here computes nothing.
@needs_posix
@pytest.mark.filterwarnings("ignore:os.fork", "ignore:This process")
def test_a_fork_holds_nothing_and_lets_nothing_go(tmp_path):
    lock = FolderLock(tmp_path)
    lock.acquire()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            held = lock.is_held()
            FolderLock(tmp_path).acquire()
        except CheckpointError:
            code = 1 if held else 0
        finally:
            lock.release()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.check_held()


def test_nobody_gets_the_same_new_folder(tmp_path):
    found, at_once = [], threading.Barrier(8)

    def work():
        at_once.wait()
        found.append(new_folder(tmp_path / "runs" / "sort").name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["sort", *(f"sort-{number}" for number in range(2, 9))]
