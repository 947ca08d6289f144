"""Numba, ready to compile, and kernels that were compiled before, ready to be called.

What Numba sets up for its first function takes longer than to load all kernels that a bug needs; to load these takes
longer than to run them. Here both are done once, for all processes that are forked from one that has done it.
Kernels are code without a word of Python: whichever copy of the package asks for the very same code gets it.
"""

import pickle
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.registry import cpu_target

ENGINE = Path(__file__).parents[2] / "src" / "glassformer" / "engines" / "cpu"
CHECKSUM = 32  # bytes before what was pickled


@numba.njit
def doubled(x):
    return 2 * x


doubled(np.ones(1))

CODEGEN = cpu_target.target_context.codegen()
UNSERIALIZE = CODEGEN.unserialize_library
KNOWN: dict[Any, Any] = {}
"""Loaded code by what it is loaded from."""


class Nothing:
    """Stands for everything in a file that is not code, so that nothing of Glassformer is imported."""

    def __new__(cls, *_: Any, **__: Any) -> "Nothing":
        return super().__new__(cls)

    def __setstate__(self, _: Any) -> None:
        pass


class Reader(pickle.Unpickler):
    """Reads code alone."""

    def find_class(self, module: str, name: str) -> Any:
        return Nothing


def newest(folder: Path) -> list[Path]:
    """The files of the last of the folders of kernels beside a source."""
    kept = sorted(folder.glob("kernels-*"), key=lambda path: path.stat().st_mtime)
    return sorted(kept[-1].glob("*.kernel")) if kept else []


def load() -> None:
    """Load all kernels, and let what asks for one of them have it."""
    for folder in ENGINE.rglob("__pycache__"):
        for path in newest(folder):
            with path.open("rb") as file:
                file.seek(CHECKSUM)
                state = Reader(file).load()[0]
            KNOWN[state] = UNSERIALIZE(state)
    CODEGEN.unserialize_library = lambda state: KNOWN[state] if state in KNOWN else UNSERIALIZE(state)
