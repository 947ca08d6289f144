"""Small disks of one's own: a file system in memory that fills up, or turns read-only, and that nobody else sees.

They are mounted in a namespace of mounts that belongs to the calling process and its forks, and are gone with them.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from .trial import LostError

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _RECURSIVE, _PRIVATE = 1, 32, 16384, 1 << 18
PAGE = 4096


def isolate() -> bool:
    """Give this process mounts of its own; tell whether the system allows it."""
    library, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if library.unshare(_NEW_MOUNTS) != 0:
        if library.unshare(_NEW_MOUNTS | _NEW_USER) != 0:
            return False
        for name, content in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path(f"/proc/self/{name}").write_text(content)
    return library.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None) == 0


def mount(folder: Path, size: int) -> bool:
    """Mount a disk of so many bytes; tell whether the system allows it."""
    return _mount(folder, 0, f"size={size}")


def resize(folder: Path, size: int) -> None:
    """Make a disk larger."""
    _demand(_mount(folder, _REMOUNT, f"size={size}"))


def protect(folder: Path, *, read_only: bool) -> None:
    """Let a disk be read only, or be written again; while a file is being written, the system asks for patience."""
    end = time.monotonic() + 10
    while not _mount(folder, _REMOUNT | (_READ_ONLY if read_only else 0), ""):
        _demand(time.monotonic() < end)
        time.sleep(0.001)


def _mount(folder: Path, flags: int, options: str) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    return library.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options.encode()) == 0


def _demand(mounted: bool) -> None:
    if not mounted:
        raise LostError(f"the disk could not be mounted: {os.strerror(ctypes.get_errno())}")
