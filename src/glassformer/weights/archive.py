"""Files out of a zip archive, into one folder and nowhere else."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from ..errors import WeightsError
from ..files import flush

MOST_FILES = 1000


def extract(archive: Path, inside: str, folder: Path, *, most: int) -> None:
    """Copy the files of an archive below `inside` ("name/", or one file) into a new folder.

    Refuses names that lead elsewhere, links, names that stand there twice, and more than `most` bytes in all.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for info, target in _chosen(opened, inside, most).items():
                path = folder / target
                path.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(info) as source, path.open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                flush(path)  # on the disk before the folder gets its name
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{archive} cannot be unpacked: {error}", hint="it is damaged: get it again") from error


def _chosen(opened: zipfile.ZipFile, inside: str, most: int) -> dict[zipfile.ZipInfo, PurePosixPath]:
    """Return the files to copy, and where to; refuse the archive if there is anything odd about one of them."""
    base = inside if inside.endswith("/") else inside.rpartition("/")[0] + "/"
    chosen: dict[zipfile.ZipInfo, PurePosixPath] = {}
    seen: set[str] = set()
    for info in opened.infolist():
        wanted = info.filename.startswith(inside) if inside.endswith("/") else info.filename == inside
        if not wanted or info.is_dir():
            continue
        name = info.filename.removeprefix(base)
        _check(info, name)
        if name.lower() in seen:
            raise WeightsError(f"the archive holds {info.filename!r:.80} twice", hint="do not use it")
        seen.add(name.lower())
        chosen[info] = PurePosixPath(name)
    size = sum(info.file_size for info in chosen)
    if not chosen:
        raise WeightsError(f"the archive does not hold {inside}", hint="it is not the one that was expected")
    if size > most or len(chosen) > MOST_FILES:
        raise WeightsError(
            f"the archive would unpack to {len(chosen):,} files of {size:,} bytes; {most:,} bytes are expected at most",
            hint="do not use it",
        )
    return chosen


def _check(info: zipfile.ZipInfo, name: str) -> None:
    parts = PurePosixPath(name).parts
    windows = PureWindowsPath(name)
    leads_out = not parts or ".." in parts or name.startswith("/") or "\\" in name or windows.drive or "\0" in name
    if leads_out or ":" in name:
        raise WeightsError(
            f"the archive holds {info.filename!r:.80}, which leads out of its folder", hint="do not use it"
        )
    mode = info.external_attr >> 16
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        raise WeightsError(f"the archive holds {info.filename!r:.80}, which is no plain file", hint="do not use it")
