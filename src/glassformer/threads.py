"""One thread of BLAS for each matrix product, as long as somebody asks for it.

BLAS has one number of threads for the whole process. Whoever comes first notes it and sets it to one, whoever leaves
last puts it back, in whatever order and from whichever thread they come and go.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

_AFFIXES = tuple(product(("", "scipy_"), ("", "64_", "_64")))  # of OpenBLAS, as it was built
_inside = 0  # how many `with` blocks are open
_before: list[int] = []
_forks = 0
_lock = threading.Lock()


class one_blas_thread:  # noqa: N801 - used like a function, and faster than one made of a generator
    """Let every matrix product run on the thread that asks for it, in the whole process, inside a `with` block."""

    __slots__ = ("_forks",)

    def __enter__(self) -> None:
        global _inside, _before
        with _lock:
            self._forks = _forks
            if not _inside:
                _before = [number() for number, _ in _libraries()]
                for _, use in _libraries():
                    use(1)
            _inside += 1

    def __exit__(self, *_: object) -> None:
        global _inside
        with _lock:
            if self._forks == _forks:
                _inside -= 1
                if not _inside:
                    _restore()


def _restore() -> None:
    for (_, use), number in zip(_libraries(), _before, strict=True):
        use(number)


def _begin_anew() -> None:
    """Forget, in a child of this process, the blocks of threads that stayed behind."""
    global _inside, _forks, _lock
    _lock = threading.Lock()
    _forks += 1
    if _inside:
        _inside = 0
        _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@cache
def _libraries() -> list[tuple[Callable[[], int], Callable[[int], Any]]]:
    """Return how to ask each BLAS for its number of threads, and how to tell it one: NumPy's, and others there are.

    A library that brings one along later is not asked: its products are not ours.
    """
    from threadpoolctl import ThreadpoolController

    found = [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
    return [_functions_of(library) for library in found]


def _functions_of(library: Any) -> tuple[Callable[[], int], Callable[[int], Any]]:
    """Return the two functions of a BLAS: OpenBLAS's own, because threadpoolctl lets one thread alone use them."""
    if library.internal_api == "openblas" and getattr(library, "threading_layer", "") != "openmp":
        own = ctypes.CDLL(library.filepath)
        for prefix, suffix in _AFFIXES:
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(own, name) for name in names):
                return getattr(own, names[0]), getattr(own, names[1])
    return library.get_num_threads, library.set_num_threads
