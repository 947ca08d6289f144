"""The lock of a run folder: one process at a time, and in it one session; what a crash leaves is taken over."""

import json
import os
import shutil
import socket
import threading

import pytest

from glassformer.errors import CheckpointError
from glassformer.files import new_folder
from glassformer.runs import lock as locks
from glassformer.runs.lock import LOCK, FolderLock, Owner

needs_posix = pytest.mark.skipif(os.name != "posix", reason="takes the place of another process by flock")
HERE = socket.gethostname()


@pytest.fixture
def foreign(tmp_path):
    """A lock that another process holds, as far as the system can tell."""
    import fcntl

    descriptor = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(Owner(123, "deep-thought", "2026-01-01T00:00:00+00:00")._asdict()).encode())
    yield descriptor
    os.close(descriptor)


def leave(folder, **changes):
    """Leave a lock behind, as a crash does."""
    (folder / LOCK).write_text(json.dumps(Owner.here()._replace(**changes)._asdict()))


def test_a_lock_names_its_holder_and_is_gone_when_let_go(tmp_path):
    lock = FolderLock(tmp_path)
    assert lock.acquire() is None
    owner = json.loads((tmp_path / LOCK).read_text())
    assert (owner["pid"], owner["host"]) == (os.getpid(), HERE)
    assert owner["since"].endswith("+00:00")
    lock.check_held()
    lock.release()
    lock.release()
    assert os.listdir(tmp_path) == []
    lock.check_held()  # takes it again
    assert lock.is_held()
    del lock
    assert os.listdir(tmp_path) == []  # nobody could have let it go any more


@needs_posix
def test_another_process_is_named_and_refused(tmp_path, foreign):
    (tmp_path / "latest.safetensors.0badcafe.partial").write_text("being written")
    with pytest.raises(
        CheckpointError, match="is being trained by process 123 on deep-thought, since 2026-01-01"
    ) as found:
        FolderLock(tmp_path).acquire()
    assert "hint: wait until it ends" in str(found.value)
    assert (tmp_path / "latest.safetensors.0badcafe.partial").exists()
    os.truncate(tmp_path / LOCK, 0)  # it has the lock, and has not yet said who it is
    with pytest.raises(CheckpointError, match="is being trained by another process"):
        FolderLock(tmp_path).acquire()


def test_what_a_crash_left_is_taken_over_and_cleaned_up(tmp_path):
    leave(tmp_path, pid=123)
    (tmp_path / "best.safetensors.0badcafe.partial").write_text("half a checkpoint")
    lock = FolderLock(tmp_path)
    assert lock.acquire().pid == 123
    assert os.listdir(tmp_path) == [LOCK]
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"pid": 3}', b"[" * 4000])
def test_a_lock_that_names_nobody_is_free(tmp_path, content):
    (tmp_path / LOCK).write_bytes(content)
    assert FolderLock(tmp_path).acquire() is None


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
    (folder / LOCK).unlink()
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


# --- file systems that know no locks ---------------------------------------------------------------------------------


@pytest.fixture
def lockless(monkeypatch):
    monkeypatch.setattr(locks, "_lock", lambda descriptor: None)


@pytest.mark.usefixtures("lockless")
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="asks the system for the start of a process")
def test_without_locks_a_process_counts_while_it_lives(tmp_path):
    leave(tmp_path)
    with pytest.raises(CheckpointError, match=f"process {os.getpid()}"):
        FolderLock(tmp_path).acquire()
    leave(tmp_path, place=["another boot", "pid:[1]", "77"])  # the same number, another process
    lock = FolderLock(tmp_path)
    assert lock.acquire().place[2] == "77"
    lock.check_held()
    lock.release()
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("lockless")
def test_without_locks_another_machine_cannot_be_asked(tmp_path):
    leave(tmp_path, host="deep-thought")
    with pytest.raises(CheckpointError, match=r"deep-thought(.|\n)*remove .*lock"):
        FolderLock(tmp_path).acquire()
    (tmp_path / LOCK).unlink()
    first = FolderLock(tmp_path)
    first.acquire()
    locks._held.clear()  # as seen from elsewhere
    os.replace(first.path, tmp_path / "aside")
    FolderLock(tmp_path).acquire()
    with pytest.raises(CheckpointError, match="another session holds"):
        first.check_held()


@needs_posix
def test_what_the_system_answers_is_understood(tmp_path, monkeypatch):
    import errno
    import fcntl

    def answering(number):
        def flock(*_):
            raise OSError(number, os.strerror(number))

        return flock

    for number, answer in {errno.ENOLCK: None, errno.EOPNOTSUPP: None, errno.EWOULDBLOCK: False}.items():
        monkeypatch.setattr(fcntl, "flock", answering(number))
        assert locks._lock(0) is answer


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
