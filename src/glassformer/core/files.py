"""Atomic writes: a file is complete or not there.

    1. write a new file under a temporary name in the same folder
    2. fsync it: its bytes are on the disk
    3. rename it to its name, which replaces the previous file in one atomic step
    4. fsync the folder: the rename is on the disk

A process killed before 3 leaves the previous file untouched; one killed after 3 leaves the new one.
"""

import errno
import hashlib
import itertools
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from .errors import CheckpointError, GlassformerError, first_line

PARTIAL = ".partial"
FULL = "the disk is full"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; when the block ends, it replaces `path` and is on the disk.

    If the block or the system fails, the temporary file is removed and the previous file is unchanged. The umask
    decides the permissions, also where a library would restrict them to the owner.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        partial.touch(exist_ok=False)
        mode = stat.S_IMODE(partial.stat().st_mode)
        yield partial
        if stat.S_IMODE(partial.stat().st_mode) != mode:
            partial.chmod(mode)
        flush(partial)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    # Should only this fail, the folder holds either the old or the new file after a power cut, both complete.
    flush_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_new(path: str | Path, content: bytes) -> Path:
    """Write a file, and the folders above it, in one step."""
    path = Path(path)
    with explained(path, hint="choose a folder that can be written to"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_bytes(content)
    return path


def open_plain(path: Path) -> BufferedReader:
    """Open a file to be read; refuse a pipe, where reading may wait forever, and a device, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    return path.open("rb")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as `sha256sum` prints it."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows writes folders by itself, and they cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the system supports it."""
    with suppress(OSError):
        flush(folder)


def new_folder(path: Path) -> Path:
    """Create and return the first of path, path-2, path-3, … that does not exist, without races."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    raise AssertionError


def check_plain(*paths: Path) -> None:
    """Refuse a symbolic link, a pipe or a device where a run is written, also inside of folders.

    What is written to one of these goes elsewhere, and its target decides where.
    """
    waiting = [*paths]
    for path in waiting:
        with suppress(FileNotFoundError):  # removed meanwhile
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                waiting += path.iterdir()
            elif not stat.S_ISREG(mode):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe or a device"
                hint = "remove it; a copy of what it leads to may take its place"
                raise CheckpointError(f"{path} is {kind}, and a run is written to plain files alone", hint=hint)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder; only its one writer may call this."""
    for path in folder.glob("*" + PARTIAL):
        if re.search(r"\.[0-9a-f]{8}$", path.stem):
            path.unlink(missing_ok=True)


@contextmanager
def explained(
    path: Path,
    error: type[GlassformerError] = CheckpointError,
    hint: str = "check the folder, and its space",
    done: str = "written",
) -> Iterator[None]:
    """Turn an OSError of writing or reading into an `error` with a remedy."""
    try:
        yield
    except OSError as found:
        if isinstance(found, GlassformerError):
            raise
        raise error(f"{path} cannot be {done}: {refusal(found)}", hint=hint) from found


def refusal(error: Exception) -> str:
    """Return why a write failed; some libraries give the system's reason only in their message."""
    match = re.search(r"os error (\d+)", str(error))
    code = error.errno if isinstance(error, OSError) else int(match[1]) if match else None
    if code in (errno.ENOSPC, errno.EDQUOT) or re.search(r"No space left|Disk quota", str(error)):
        return FULL
    return os.strerror(code) if code else first_line(error)


def disk_hint(why: str, folder: Path, size: int) -> str:
    """Return the hint for `size` bytes that could not be written into a folder."""
    if why != FULL:
        return "check the folder's permissions and its disk"
    hint = f"free some space: it needs {size / 1e6:,.1f} MB"
    with suppress(OSError):
        hint += f", and {shutil.disk_usage(folder).free / 1e6:,.1f} MB are free"
    return hint


def plain_json(value: Any) -> Any:
    """Return a value in JSON's own types; NaN and infinities become None."""
    if isinstance(value, dict):
        return {str(name): plain_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(part) for part in value]
    if hasattr(value, "tolist"):
        return plain_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
