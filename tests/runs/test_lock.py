"""The lock of a run folder: one process at a time, and in it one session; what a crash leaves is taken over."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from glassformer.core.errors import CheckpointError
from glassformer.core.files import new_folder
from glassformer.runs.folder import HOLDER, LOCK, FolderLock, Holder

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


# --- names -----------------------------------------------------------------------------------------------------------


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
