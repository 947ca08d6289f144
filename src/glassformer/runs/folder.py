"""The text files of a run folder: config.json with its checksum, large tokenizers beside it, the metrics, and the lock.

One session at a time writes into a run folder: the one that holds the system's lock on its file `lock`, and which
`holder.json` names. The system frees the lock when the process ends; a holder that is still named then has crashed.
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

from ..core import files
from ..core.documents import RESTORE, check_document, digest, explaining_damage, read_json, write_document
from ..core.errors import CheckpointError, ConfigError
from ..core.files import check_plain, explained, remove_leftovers
from ..data.task import is_task

CONFIG = "config.json"
TOKENIZERS = "tokenizers.json"
METRICS = "metrics.jsonl"
FORMAT = 2
"""Of config.json; in the format 1, the checksum left out the path of the data."""
LARGE = 100_000
"""Tokenizers that take more characters are kept in a file of their own."""
UNCHANGED = "check the path and the disk; the checkpoints are unchanged"
RECENT = 20
"""Steps over which the training loss is averaged where one number stands for it."""
_NUMBERS = ("loss", "lr", "grad_norm", "tokens", "seconds", "val_loss", "accuracy", "train_accuracy")


def write_config(folder: Path, content: dict[str, Any]) -> None:
    """Write what a run is, with its checksum; large tokenizers come first: a folder that has one file has both."""
    whole = checksum(content)
    tokenizers = {name: content[name] for name in ("tokenizer", "target_tokenizer")}
    text = json.dumps(tokenizers, ensure_ascii=False)
    if len(text) > LARGE:
        write(folder / TOKENIZERS, text + "\n")
        content = {**content, **{name: stored and TOKENIZERS for name, stored in tokenizers.items()}}
    with files.explained(folder / CONFIG, hint=UNCHANGED):
        write_document(folder / CONFIG, content, checksum=whole)


def read_config(folder: Path) -> dict[str, Any]:
    """Return what the config.json of a run folder says; refuse one that is damaged. None of its Python files run."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is not a run folder: it {f'has no {CONFIG}' if folder.exists() else 'does not exist'}",
            hint="pass a folder that `glassformer train` wrote; `glassformer runs` lists them",
        )
    content = read_json(path)
    with explaining_damage(path):
        if content["tokenizer"] == TOKENIZERS:
            content |= read_json(folder / TOKENIZERS)
        if not is_task(content["task"]):
            raise ConfigError("its task is none")
        if content["format"] not in (1, FORMAT):
            raise ConfigError(f"its format is {content['format']!r:.20}, and this version reads 1 and {FORMAT}")
    if not check_document(path, content, checksum=checksum) and content.get("own"):
        raise CheckpointError(f"{path} names Python files to run, but has no checksum", hint=RESTORE)
    return content


def checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of what a run is.

    The paths of custom files are left out: they may be moved, and have hashes of their own. In the format 1, the path
    of the data is left out as well.
    """
    task = content["task"]
    if content["format"] == 1:
        task = {**task, "options": {name: value for name, value in task["options"].items() if name != "data"}}
    return digest({**content, "task": task, "own": [file["sha256"] for file in content.get("own", ())]})


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of a metrics file, and the number of damaged ones."""
    if not path.is_file():
        return [], 0
    with files.explained(path, done="read"):
        lines = path.read_bytes().splitlines()
    read = [_parsed(line) for line in lines if line.strip()]
    kept = [line for line in read if line is not None]
    return kept, len(read) - len(kept)


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return one line, if it is what a step wrote."""
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int or "loss" not in line:
        return None
    plain = all(line.get(name) is None or type(line[name]) in (int, float) for name in _NUMBERS)
    return line if plain and line["step"] > 0 and ("val_loss" not in line or "best" in line) else None


def write(path: Path, text: str, *, append: bool = False) -> None:
    """Replace a text file of a run in one step, or append to it."""
    with files.explained(path, hint=UNCHANGED):
        if not append:
            files.write_text(path, text)
            return
        with path.open("a", encoding="utf-8") as file:
            file.write(text)


# --- the lock --------------------------------------------------------------------------------------------------------

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
