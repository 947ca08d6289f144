"""Compiled code on disk: where it is kept, and when it is taken from there.

Code is kept beside its source, or in the user's folder for caches where nothing can be written there, or wherever
NUMBA_CACHE_DIR says, in a folder named by all that it was compiled from: every source of this engine, what these take
from elsewhere, Numba and its compiler. A kernel calls functions of other files, so a change of any of them leads to
another folder, and so to new code.

There is one file for each function, processor and combination of types. It is complete or not there, whoever else
writes it at the same time, and begins with a checksum of all the rest: half a file, a damaged one, or one of another
name is compiled anew. Where nothing can be written, everything is, at each start.
"""

import hashlib
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from ...files import replacing

HERE = Path(__file__).parent
ELSEWHERE = (HERE.parents[1] / "quantized.py",)
"""Files outside of this engine whose constants stand in kernels."""
ENDING = ".kernel"
_CHECKSUM = 32  # bytes


@cache
def mark() -> str:
    """Return a mark of all that kernels are compiled from, and of the compiler."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in (*sorted(HERE.rglob("*.py")), *ELSEWHERE):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Kept(_Cache):
    """The compiled code of one function, as Numba's dispatchers ask for it and hand it over."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code, file = function.__code__, Path(function.__code__.co_filename)
        self._name = f"{file.stem}.{function.__qualname__}-{code.co_firstlineno}.{sys.implementation.cache_tag}"
        self._folder = file.parent

    def folders(self) -> Iterator[Path]:
        """Go through the folders where the code may be, the best one first."""
        name = f"kernels-{mark()}"
        if numba.config.CACHE_DIR:  # NUMBA_CACHE_DIR
            yield Path(numba.config.CACHE_DIR) / name / self._folder.relative_to(HERE)
            return
        yield self._folder / "__pycache__" / name
        from ...weights.registry import cache_folder  # not needed at most starts

        with suppress(RuntimeError):  # a user without a home
            yield cache_folder() / name / self._folder.relative_to(HERE)

    @property
    def cache_path(self) -> str:
        """Where the code is kept if it can be."""
        return str(next(self.folders()))

    def is_known(self) -> bool:
        """Tell whether the function has been compiled for some types before."""
        return any(any(folder.glob(f"{self._name}.*{ENDING}")) for folder in self.folders())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for such arguments; None where it is not there, or not as it was written."""
        target_context.refresh()
        key = self._key(sig, target_context.codegen())
        for folder in self.folders():
            try:
                content = (folder / self._file(key)).read_bytes()
            except OSError:
                continue
            checksum, stored = content[:_CHECKSUM], content[_CHECKSUM:]
            if checksum == _checksum(key, stored):
                return CompileResult._rebuild(target_context, *pickle.loads(stored))
            _say("some compiled kernels were damaged: they are compiled again")
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code for such arguments wherever it can be kept."""
        if data.library.has_dynamic_globals:  # addresses of this process
            return
        key, stored = self._key(sig, data.codegen), dumps(data._reduce())
        reason: Any = None
        for folder in self.folders():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(folder / self._file(key)) as partial:
                    partial.write_bytes(_checksum(key, stored) + stored)
                return
            except OSError as error:
                reason = reason or error.strerror
        places = " or ".join(str(folder) for folder in self.folders())
        _say(f"compiled kernels cannot be kept in {places} ({reason}): every start compiles them again")

    def enable(self) -> None:
        """Do nothing: code is always kept."""

    def disable(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: what is compiled again takes the place of what was there."""

    def _key(self, sig: Any, codegen: Any) -> bytes:
        """Return what tells this code from all other: the function, the types, and the processor."""
        return repr((self._name, str(normalize_signature(sig)), codegen.magic_tuple())).encode()

    def _file(self, key: bytes) -> str:
        return f"{self._name}.{hashlib.sha256(key).hexdigest()[:16]}{ENDING}"


def _checksum(key: bytes, stored: bytes) -> bytes:
    return hashlib.sha256(key + stored).digest()


@cache
def _say(fact: str) -> None:
    """Say something once."""
    logging.getLogger("glassformer").warning(fact)
