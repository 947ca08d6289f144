"""Files that are complete or not there."""

import errno
import os

import pytest

from glassformer.core.errors import CheckpointError, DataError
from glassformer.core.files import (
    FULL,
    disk_hint,
    explained,
    refusal,
    remove_leftovers,
    replacing,
    write_new,
    write_text,
)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_gets_its_name_when_all_of_it_is_written(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert partial.parent == tmp_path
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.skipif(os.name != "posix", reason="the permissions of POSIX")
def test_who_may_read_a_file_is_what_the_umask_says_whoever_wrote_it(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "notes.txt") as partial:
            partial.unlink()  # as libraries do that write a file of their own and rename it
            os.close(os.open(partial, os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        os.umask(before)
    assert (tmp_path / "notes.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("failure", [ValueError, OSError, KeyboardInterrupt])
def test_a_failure_while_writing_leaves_the_previous_file_alone(tmp_path, failure):
    path = tmp_path / "notes.txt"
    path.write_text("old")

    def write():
        with replacing(path) as partial:
            partial.write_text("ne")
            raise failure

    with pytest.raises(failure):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_previous_file_alone(tmp_path, monkeypatch, function):
    write_text(tmp_path / "notes.txt", "old")
    monkeypatch.setattr(os, function, full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_text(tmp_path / "notes.txt", "new")
    assert (tmp_path / "notes.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    calls = []

    def noted(name):
        function = getattr(os, name)

        def call(*arguments):
            calls.append(name)
            return function(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    write_text(tmp_path / "notes.txt", "new")
    assert calls == ["fsync", "replace"] + (["fsync"] if os.name != "nt" else [])


def test_text_is_stored_as_utf_8_in_folders_that_it_brings(tmp_path):
    write_text(tmp_path / "notes.txt", "Σ nᵢ\n")
    assert (tmp_path / "notes.txt").read_bytes() == "Σ nᵢ\n".encode()
    path = write_new(tmp_path / "a" / "b" / "picture.png", b"1234")
    assert path.read_bytes() == b"1234"


def test_what_the_system_refuses_becomes_an_error_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"x\.png cannot be written: (?s:.*)hint: choose a folder"):
        write_new(tmp_path / "file" / "x.png", b"")

    message = r"x cannot be written: the disk is full(?s:.*)hint: check the folder"
    with pytest.raises(DataError, match=message), explained(tmp_path / "x", DataError):
        full()
    with pytest.raises(CheckpointError, match=r"^it is damaged$"), explained(tmp_path / "x", DataError):
        raise CheckpointError("it is damaged")
    with pytest.raises(ZeroDivisionError), explained(tmp_path / "x"):
        raise ZeroDivisionError


def test_only_leftovers_of_our_own_are_removed(tmp_path):
    for name in ("run.json.0badcafe.partial", "film.partial", "film.download.partial", "run.json"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["film.download.partial", "film.partial", "run.json"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "?"), FULL),
        (OSError(errno.EDQUOT, "?"), FULL),
        (RuntimeError("I/O error (os error 28)"), FULL if errno.ENOSPC == 28 else os.strerror(28)),
        (RuntimeError("write failed: No space left on device\nat line 3"), FULL),
        (OSError(errno.EACCES, "?"), os.strerror(errno.EACCES)),
        (RuntimeError("it broke\nat line 3"), "it broke"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_the_reason_is_found_in_the_number_or_in_the_message(error, words):
    assert refusal(error) == words


def test_a_full_disk_is_answered_with_the_space_that_is_needed(tmp_path):
    assert disk_hint(FULL, tmp_path, 16_000_000).startswith("free some space: it needs 16.0 MB, and ")
    assert disk_hint(FULL, tmp_path / "nowhere", 16_000_000) == "free some space: it needs 16.0 MB"
    assert disk_hint("Permission denied", tmp_path, 1) == "check the folder's permissions and its disk"
