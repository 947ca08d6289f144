"""One session at a time writes into a run folder: the one that holds the system's lock on its file `lock`.

`holder.json` names it. The system frees the lock when the process ends; a holder that is still named then has crashed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import CheckpointError
from ..core.files import check_plain, explained, remove_leftovers

LOCK, HOLDER = "lock", "holder.json"
_held: weakref.WeakValueDictionary[Path, FolderLock] = weakref.WeakValueDictionary()
_changing = threading.RLock()


class Holder(NamedTuple):
    """The process that holds a lock, and when it acquired it, in UTC."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class FolderLock:
    """The lock of one session on a run folder; free when released, garbage-collected, or the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holder: Holder | None = None
        self._lost = False
        self._before: FolderLock | None = None  # the lock that this one took over in this process

    def acquire(self, *, new: bool = False) -> Holder | None:
        """Acquire the lock or raise; return the holder that crashed with it, if one did.

        Another session of this process loses the lock, except to a session that starts a `new` run. Half-written files
        of killed processes are removed.
        """
        from filelock import FileLock, Timeout  # loads asyncio, and only training needs it

        with _changing, explained(self.folder / LOCK):
            check_plain(*self.folder.iterdir())
            before = _held.get(self.folder.resolve())
            if before is not None and before is not self:
                if new and before.is_held():
                    raise _refusal(self.folder)
                self._before = before if before.is_held() else None
                before.release()
                before._lost, before._before = True, None
            lock = FileLock(self.folder / LOCK, timeout=0, thread_local=False)
            try:
                lock.acquire()
            except Timeout:
                raise _refusal(self.folder) from None
            left, now = _read(self.folder), datetime.now(UTC).isoformat(timespec="seconds")
            self._holder, self._lost = Holder(os.getpid(), socket.gethostname(), now), False
            self._end = weakref.finalize(self, _free, lock, self.folder, self._holder)
            (self.folder / HOLDER).write_text(json.dumps(self._holder._asdict()), encoding="utf-8")
            _held[self.folder.resolve()] = self
            remove_leftovers(self.folder)
            return left

    def check_held(self) -> None:
        """Check before a write that the folder exists and this session holds it; acquire it if free."""
        if self._holder is None and not self._lost:
            self.acquire()
        if self.is_held():
            return
        fact = f"another session holds {self.folder}, or its {HOLDER} was removed; nothing more is written"
        hint = f"resume it: `glassformer train --resume {self.folder}`, or gf.resume({str(self.folder)!r})"
        if not self.folder.is_dir():
            fact = f"{self.folder} was removed or renamed while it was trained"
            hint = "if it was renamed, resume it there: `glassformer train --resume RUN`, or gf.resume(run)"
        raise CheckpointError(fact, hint=hint)

    def is_held(self) -> bool:
        """Return whether this session holds the folder, and the folder exists; a fork holds nothing."""
        return self._holder is not None and self._holder.pid == os.getpid() and _read(self.folder) == self._holder

    def release(self) -> None:
        """Free the folder for others."""
        if self._holder is not None:
            self._end()
            self._holder = None

    def hand_back(self) -> None:
        """Release the folder, to the session that held it before in this process, if any."""
        self.release()
        if self._before is not None:
            self._before.acquire()


def _free(lock: Any, folder: Path, holder: Holder) -> None:
    if holder.pid == os.getpid():
        with contextlib.suppress(OSError):
            if _read(folder) == holder:  # else the folder was taken over, or is gone
                (folder / HOLDER).unlink()
        lock.release()


def _read(folder: Path) -> Holder | None:
    """Return the holder that a folder names; None if it names none."""
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        return Holder(**json.loads((folder / HOLDER).read_bytes()))
    return None


def _refusal(folder: Path) -> CheckpointError:
    who = _read(folder) or "another process"
    return CheckpointError(
        f"{folder} is being trained by {who}", hint="wait until it ends, stop it, or choose another folder"
    )
