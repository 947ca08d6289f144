"""The cache of compiled kernels on disk.

Code lies beside its source, or in the user's cache folder if that is read-only, or where NUMBA_CACHE_DIR says. Its
folder is named by a hash of everything it was compiled from: all sources of this engine, constants from elsewhere,
Numba and LLVM. A change of any of them leads to another folder, because kernels call functions of other files.

There is one file for each function, processor and combination of types. Files are written atomically and begin with a
checksum: a truncated, damaged or renamed file is compiled anew. Without a writable folder, every start compiles.

If several processes miss the same code, one compiles it and the others wait (`Turn`).
"""

import hashlib
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from ...core.files import replacing
from ...core.reporting import log_once

HERE = Path(__file__).parent
ELSEWHERE = (HERE.parents[1] / "core" / "quantized.py",)  # whose constants stand in kernels
ENDING = ".kernel"
_CHECKSUM = 32  # bytes
PATIENCE = 300.0  # seconds to wait for another process that compiles: one that takes longer was stopped


@cache
def mark() -> str:
    """Return a hash of all that kernels are compiled from, and of the compiler."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in (*sorted(HERE.rglob("*.py")), *ELSEWHERE):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def folders(home: Path) -> Iterator[Path]:
    """Go through the folders where the code of the sources in a folder may be, the best one first."""
    name = f"kernels-{mark()}"
    if numba.config.CACHE_DIR:  # NUMBA_CACHE_DIR
        yield Path(numba.config.CACHE_DIR) / name / home.relative_to(HERE)
        return
    yield home / "__pycache__" / name
    from ...weights.catalog import cache_folder  # not needed at most starts

    with suppress(RuntimeError):  # a user without a home
        yield cache_folder() / name / home.relative_to(HERE)


def has_compiled_kernels() -> bool:
    """Tell whether something has been compiled here before."""
    return any(any(folder.glob(f"*{ENDING}")) for folder in folders(HERE))


class Turn:
    """The right to compile: a file lock, which ends with its process."""

    patient = True  # until one wait was too long, for the whole process

    def __init__(self, paths: Iterable[Path]) -> None:
        self._file: Any = None  # in the first writable folder; without one, nothing is locked
        for path in paths:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._path, self._file = path, path.open("wb")
                break

    def wait(self) -> None:
        """Wait until no other process holds the lock, at most PATIENCE seconds."""
        try:
            import fcntl
        except ImportError:  # on Windows, each process compiles what it misses
            return
        end = time.monotonic() + PATIENCE
        while self._file is not None and Turn.patient:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                Turn.patient = time.monotonic() < end
                time.sleep(0.02)
            except OSError:  # a file system without locks
                return

    def give_back(self) -> None:
        """Release the lock, since the code is written, and delete its file, even one made after another was deleted."""
        if self._file is not None:
            with suppress(OSError):
                self._path.unlink()
            self._file.close()


class KernelCache(_Cache):
    """The compiled code of one function, for Numba's dispatcher."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code, file = function.__code__, Path(function.__code__.co_filename)
        self._name = f"{file.stem}.{function.__qualname__}-{code.co_firstlineno}.{sys.implementation.cache_tag}"
        self._folder = file.parent
        self._turns: dict[bytes, Turn] = {}  # by key, while something is compiled

    @property
    def cache_path(self) -> str:
        return str(next(folders(self._folder)))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for such arguments; None where it is not there, or not as it was written."""
        rtsys.initialize(target_context)  # all that loading needs: `refresh`, for compiling, takes as long as the rest
        key = self._key(sig, target_context.codegen())
        found = self._read(key, target_context)
        if found is None and key not in self._turns:  # after a compilation that failed, it is still this process's turn
            self._turns[key] = turn = Turn(folder / f"{self._file(key)}.lock" for folder in folders(self._folder))
            turn.wait()
            found = self._read(key, target_context)  # another process may have compiled it just now
            if found is not None:
                self._turns.pop(key).give_back()
        return found

    def _read(self, key: bytes, target_context: Any) -> Any:
        for folder in folders(self._folder):
            try:
                content = (folder / self._file(key)).read_bytes()
            except OSError:
                continue
            checksum, stored = content[:_CHECKSUM], content[_CHECKSUM:]
            if checksum == hashlib.sha256(key + stored).digest():
                return CompileResult._rebuild(target_context, *pickle.loads(stored))
            log_once("some compiled kernels were damaged: they are compiled again")
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code for such arguments wherever it can be kept."""
        key = self._key(sig, data.codegen)
        try:
            if not data.library.has_dynamic_globals:  # addresses of this process
                self._write(key, dumps(data._reduce()))
        finally:
            if key in self._turns:
                self._turns.pop(key).give_back()

    def _write(self, key: bytes, stored: bytes) -> None:
        reason: Any = None
        for folder in folders(self._folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(folder / self._file(key)) as partial:
                    partial.write_bytes(hashlib.sha256(key + stored).digest() + stored)
                return
            except OSError as error:
                reason = reason or error.strerror
        places = " or ".join(str(folder) for folder in folders(self._folder))
        log_once(f"compiled kernels cannot be kept in {places} ({reason}): every start compiles them again")

    def enable(self) -> None:
        """Do nothing, nor in the next two: code is always kept, and what is compiled again takes its place."""

    disable = flush = enable

    def _key(self, sig: Any, codegen: Any) -> bytes:
        """Return what tells this code from all other: the function, the types, and the processor."""
        return repr((self._name, str(normalize_signature(sig)), codegen.magic_tuple())).encode()

    def _file(self, key: bytes) -> str:
        return f"{self._name}.{hashlib.sha256(key).hexdigest()[:16]}{ENDING}"
