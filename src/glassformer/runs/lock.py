"""A run folder belongs to one process at a time, and there to one session: whoever writes into it holds its lock.

The lock is the file `lock` in the folder. Its holder keeps it open and locked by the system, which frees it when the
process ends, however it ends: by flock, or by a locked byte on Windows. Inside stands who holds it, for others to be
told. A lock that is free and still names a holder is what a crash left behind: the next one takes it over, and says so.

Where a file system knows no locks, the process that is named holds it as long as it lives; of one on another machine
that is not known, so it counts as alive until someone removes the file.
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
_FAR = 1 << 30  # behind what is written: on Windows no one else can read a locked byte
_UNKNOWN = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
"""What file systems answer that know no locks."""

_TRIES = 100  # for a lock that others take and remove, again and again

_held: weakref.WeakValueDictionary[Path, FolderLock] = weakref.WeakValueDictionary()
_changing = threading.RLock()


class Owner(NamedTuple):
    """Who holds a lock, or did.

    since   when it was taken, in UTC
    place   what tells the process from all others of its machine, see `workers.place_of`; None: the system does not say
    """

    pid: int
    host: str
    since: str
    place: list[str] | None = None

    @classmethod
    def here(cls) -> Owner:
        """Return this process, now."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), since, place_of(os.getpid()))

    def may_live(self) -> bool:
        """Tell whether the process may still be there: only of one of this machine can it be known that it is not."""
        own = place_of(os.getpid())
        known = self.host == socket.gethostname() and self.place is not None and own is not None
        return not known or self.place == place_of(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class FolderLock:
    """The right of one session to write into a run folder; free when it is let go, collected, or the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK
        self._descriptor: int | None = None
        self._process = 0  # that took it; a fork of it holds nothing
        self._lost = False
        self._before: FolderLock | None = None  # of the session that it was taken from

    def acquire(self, *, new: bool = False) -> Owner | None:
        """Take the lock, or refuse; return who held it before and ended without letting it go.

        Another session of this process loses it, and can write no more; but not to one that is to begin a `new` run.
        What killed processes left half written is removed.
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
        """Make sure, before something is written, that the folder is there and belongs to this session."""
        if self._descriptor is None and not self._lost:
            self.acquire()
        if self.is_held():
            return
        if not self.folder.is_dir():
            raise CheckpointError(
                f"{self.folder} is gone: it was removed or renamed while it was trained",
                hint="where it was renamed, `glassformer train --resume` goes on from its last checkpoint there",
            )
        raise CheckpointError(
            f"{self.folder} belongs to another session by now, or its {LOCK} was removed; nothing more is written",
            hint=f"`glassformer train --resume {self.folder}` goes on from its last checkpoint",
        )

    def is_held(self) -> bool:
        """Tell whether this session has the folder, and the folder is there."""
        return self._process == os.getpid() and _stands(self._descriptor, self.path)

    def release(self) -> None:
        """Let others have the folder."""
        if self._descriptor is not None:
            self._end()
            self._descriptor = None

    def hand_back(self) -> None:
        """Let the folder go, back to the session that it was taken from, if there was one."""
        self.release()
        if self._before is not None:
            self._before.acquire()


def _opened(path: Path) -> tuple[int, Owner | None]:
    """Return a lock, open and taken, and whom it named before; refuse one that another process has."""
    for _ in range(_TRIES):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked, left = _lock(descriptor), _read(descriptor)
            if locked is False or (locked is None and left is not None and left.may_live()):
                raise _refusal(path, left)
            stands = _stands(descriptor, path)  # else its holder has removed it just now
            if stands and locked:
                _write(descriptor)
                return descriptor, left
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if stands:
            return _replaced(path), left
    raise _refusal(path, None)


def _replaced(path: Path) -> int:
    """Put a file of one's own in the place of one that cannot be locked: who made that one will see that it is gone."""
    with replacing(path) as partial:
        descriptor = os.open(partial, os.O_RDWR)
        _write(descriptor)
    return descriptor


def _lock(descriptor: int) -> bool | None:
    """Lock an open file for this process alone; False: another one has it. None: there are no locks here."""
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
    """Tell whether an open file is still the one at its path."""
    try:
        return descriptor is not None and os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _read(descriptor: int) -> Owner | None:
    """Return whom a lock names; nobody where it names none that can be read."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        return Owner(**json.loads(os.read(descriptor, 4096)))
    return None


def _write(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(Owner.here()._asdict()).encode())


def _close(descriptor: int, path: Path, process: int) -> None:
    """Let a lock go: remove it, if it is still there and this is the process that took it."""
    remove = process == os.getpid() and _stands(descriptor, path)
    if sys.platform == "win32":  # where no one can remove what is open
        os.close(descriptor)
    with contextlib.suppress(OSError):
        if remove:
            path.unlink()
    if sys.platform != "win32":
        os.close(descriptor)


def _refusal(path: Path, owner: Owner | None) -> CheckpointError:
    who = "another process" if owner is None else str(owner)
    hint = "wait until it ends, or stop it; for another run choose another folder"
    if owner is not None and owner.host != socket.gethostname():
        hint += f"; if it is no longer there, remove {path}"
    return CheckpointError(f"{path.parent} is being trained by {who}", hint=hint)
