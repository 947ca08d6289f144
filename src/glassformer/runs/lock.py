"""One session at a time writes into a run folder: the one that holds the file `lock`, which names its holder.

The holder keeps the file open and locked by the system, which frees it when the process ends. A free lock that still
names a holder was left by a crash. Where a file system has no locks, the named process holds it as long as it lives; a
process on another machine counts as alive until the file is removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ..cluster.workers import place_of
from ..errors import CheckpointError
from ..files import explained, remove_leftovers, replacing

LOCK = "lock"
_FAR = 1 << 30  # past the content: on Windows others cannot read a locked byte
_UNKNOWN = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
"""Answers of file systems without locks."""

_TRIES = 100  # while others create and remove the lock

_held: weakref.WeakValueDictionary[Path, FolderLock] = weakref.WeakValueDictionary()
_changing = threading.RLock()


class Owner(NamedTuple):
    """The holder of a lock."""

    pid: int
    host: str
    since: str  # when it acquired the lock, in UTC
    place: list[str] | None = None  # identifies the process on its machine, see `workers.place_of`

    @classmethod
    def here(cls) -> Owner:
        """Describe this process."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), since, place_of(os.getpid()))

    def may_live(self) -> bool:
        """Tell whether the process may be alive; only on this machine can it be known to have ended."""
        known = self.host == socket.gethostname() and self.place is not None and place_of(os.getpid()) is not None
        return not known or self.place == place_of(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class FolderLock:
    """The lock of one session on a run folder; free when released, garbage-collected, or the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK
        self._descriptor: int | None = None
        self._process = 0  # that acquired it; a fork holds nothing
        self._lost = False
        self._before: FolderLock | None = None  # the lock that this one took over in this process

    def acquire(self, *, new: bool = False) -> Owner | None:
        """Acquire the lock or raise; return the holder that crashed with it, if one did.

        Another session of this process loses the lock, except to a session that starts a `new` run. Half-written files
        of killed processes are removed.
        """
        with _changing, explained(self.path):
            before = _held.get(self.folder.resolve())
            if before is not None and before is not self:
                if new and before.is_held():
                    raise _refusal(self.path, Owner.here())
                self._before = before if before.is_held() else None
                before.release()
                before._lost, before._before = True, None
            self._descriptor, left = _opened(self.path)
            self._process, self._lost = os.getpid(), False
            self._end = weakref.finalize(self, _close, self._descriptor, self.path, self._process)
            _held[self.folder.resolve()] = self
            remove_leftovers(self.folder)
            return left

    def check_held(self) -> None:
        """Check before a write that the folder exists and this session holds it; acquire it if free."""
        if self._descriptor is None and not self._lost:
            self.acquire()
        if self.is_held():
            return
        fact = f"another session holds {self.folder}, or its {LOCK} was removed; nothing more is written"
        hint = f"resume it: `glassformer train --resume {self.folder}`, or gf.resume({str(self.folder)!r})"
        if not self.folder.is_dir():
            fact = f"{self.folder} was removed or renamed while it was trained"
            hint = "if it was renamed, resume it there: `glassformer train --resume RUN`, or gf.resume(run)"
        raise CheckpointError(fact, hint=hint)

    def is_held(self) -> bool:
        """Tell whether this session holds the folder, and the folder exists."""
        return self._process == os.getpid() and _stands(self._descriptor, self.path)

    def release(self) -> None:
        """Free the folder for others."""
        if self._descriptor is not None:
            self._end()
            self._descriptor = None

    def hand_back(self) -> None:
        """Release the folder, to the session that held it before in this process, if any."""
        self.release()
        if self._before is not None:
            self._before.acquire()


def _opened(path: Path) -> tuple[int, Owner | None]:
    """Return the open, acquired lock file and its holder before; refuse one that another process holds."""
    for _ in range(_TRIES):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked, left = _lock(descriptor), _read(descriptor)
            if locked is False or (locked is None and left is not None and left.may_live()):
                raise _refusal(path, left)
            stands = _stands(descriptor, path)  # else its holder removed it meanwhile
            if stands and locked:
                _write(descriptor)
                return descriptor, left
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if stands:  # it cannot be locked; its former holder notices that it is replaced
            with replacing(path) as partial:
                descriptor = os.open(partial, os.O_RDWR)
                _write(descriptor)
            return descriptor, left
    raise _refusal(path, None)


def _lock(descriptor: int) -> bool | None:
    """Lock an open file; False if another process has it, None if the file system has no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return None if error.errno in _UNKNOWN else False
    except ImportError:
        return None
    return True


def _stands(descriptor: int | None, path: Path) -> bool:
    try:
        return descriptor is not None and os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _read(descriptor: int) -> Owner | None:
    """Return the holder that a lock names; None if it is unreadable."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        return Owner(**json.loads(os.read(descriptor, 4096)))
    return None


def _write(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(Owner.here()._asdict()).encode())


def _close(descriptor: int, path: Path, process: int) -> None:
    """Close a lock, and remove it if this process acquired it and it still stands."""
    remove = process == os.getpid() and _stands(descriptor, path)
    if sys.platform == "win32":  # which cannot remove an open file
        os.close(descriptor)
    with contextlib.suppress(OSError):
        if remove:
            path.unlink()
    if sys.platform != "win32":
        os.close(descriptor)


def _refusal(path: Path, owner: Owner | None) -> CheckpointError:
    who = "another process" if owner is None else str(owner)
    hint = "wait until it ends, stop it, or choose another folder"
    if owner is not None and owner.host != socket.gethostname():
        hint += f"; if it has ended, remove {path}"
    return CheckpointError(f"{path.parent} is being trained by {who}", hint=hint)
