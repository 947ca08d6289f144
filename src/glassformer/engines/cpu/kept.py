"""Where compiled code is kept: beside its source, in a folder named by all sources that it may have been compiled from.

Numba looks at the file that a function stands in. A kernel calls functions of other files, and would be taken from disk
as it was when these were others. A change of any file of this engine leads to another folder, and so to new code.
"""

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any, Self

import numba
from numba.core.caching import CacheImpl, _CacheLocator

HERE = Path(__file__).parent


@cache
def mark() -> str:
    """Return a mark of all sources of this engine, and of the compiler."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(HERE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class BesideSource(_CacheLocator):
    """A folder of compiled code for the functions of one file."""

    def __init__(self, function: Any, file: str) -> None:
        self._folder = os.path.join(os.path.dirname(file), "__pycache__", f"kernels-{mark()}")
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return mark()

    def get_disambiguator(self) -> str:
        """Return what tells functions of the same name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Self | None:
        """Return the place for a function of this engine, None for others and where nothing can be written."""
        if HERE not in Path(py_file).parents:
            return None
        found = cls(py_func, py_file)
        try:
            found.ensure_cache_path()
        except OSError:
            return None
        return found


def keep_beside_sources() -> None:
    """Let Numba keep this engine's code so; everybody else's stays where it was."""
    if BesideSource not in CacheImpl._locator_classes:
        CacheImpl._locator_classes.insert(0, BesideSource)
