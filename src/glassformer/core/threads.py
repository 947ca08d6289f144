"""The number of threads that compute: those of BLAS, and the cores that the kernels of the engine cpu take.

    threads              sets both for the whole process
    cores                how many cores kernels may use here; `at_most` limits them in one thread or task
    one_blas_thread      every product runs on the thread that asks for it, as where each core computes its own shard
    one_thread_if_busy   the same beside other jobs
    suitable_threads     the same for small products
    computing_with       as many cores and BLAS threads as a run began with

BLAS has one number of threads for the whole process. The first block of `one_blas_thread` to open notes it and sets it
to one, and the last to close puts it back, in any order and from any thread.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from itertools import product
from typing import Any, NamedTuple
from weakref import ref

from .errors import ConfigError
from .reporting import during

_AFFIXES = tuple(product(("", "scipy_"), ("", "64_", "_64")))  # of OpenBLAS, as it was built
_open: set["ref[one_blas_thread]"] = set()  # the `with` blocks that want one thread
_before: list[int] = []  # how many there were; empty while no block is open
_lock = threading.RLock()  # a block that is forgotten closes at any moment, such as while another one opens
limits: list[int] = []  # how many cores kernels may use; empty: all that this process may run on
PATIENCE = 5.0
"""Seconds after which no thread can still be at work behind the lock: what takes it is done in milliseconds."""
WORTHWHILE = 5e8
"""Matrix products of fewer FLOPs run on one thread: distributing them costs more than it saves."""

_here = threading.local()
_limit: ContextVar[int | None] = ContextVar("limit", default=None)


# --- cores -----------------------------------------------------------------------------------------------------------


def cores() -> int:
    """Return how many cores may be used here: one inside a task, else all this process may run on, or as set."""
    if getattr(_here, "busy", False):
        return 1
    limit = _limit.get()
    if limit is not None:
        return limit
    if limits:
        return limits[0]
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def at_most(number: int) -> AbstractContextManager[None]:
    """Use this many cores inside a `with` block, in this thread or task alone."""
    return during(_limit, number)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Use no further cores inside a `with` block: this thread is one of several that compute."""
    before = getattr(_here, "busy", False)
    _here.busy = True
    try:
        yield
    finally:
        _here.busy = before


@contextlib.contextmanager
def computing_with(number: int, blas_threads: int | None) -> Iterator[None]:
    """Use this many cores here, and this many threads of BLAS in the whole process (None: as many as there are)."""
    from threadpoolctl import threadpool_limits

    with at_most(number), threadpool_limits(blas_threads, user_api="blas"):
        yield


# --- cores and BLAS --------------------------------------------------------------------------------------------------


class threads:  # noqa: N801 - used like a function
    """Compute with this many threads in this process: BLAS, and the kernels of the engine cpu.

        gf.threads(1)               from now on
        with gf.threads(1): …       inside the block

    One thread helps beside other jobs: the threads of BLAS wait for each other at every product that they share, and
    so for a core that another job holds. The engine jax has threads of its own.
    """

    def __init__(self, number: int) -> None:
        if number not in range(1, 1025):
            raise ConfigError(f"the number of threads is {number!r}", hint="use a whole number from 1 to 1,024")
        self.number, libraries = number, _libraries()
        with _free_lock():
            self._restored = list(limits), _before if _open else [library.ask() for library in libraries]
            _set([number], [number] * len(libraries))

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        with _free_lock():
            _set(*self._restored)

    def __repr__(self) -> str:
        return f"<threads: {self.number}>"


def _set(cores: list[int], numbers: list[int]) -> None:
    global _before
    limits[:] = cores
    if _open:
        _before = numbers  # for when the last block closes
    else:
        _use(numbers)


def _use(numbers: list[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        library.use(number)


class one_blas_thread:  # noqa: N801 - used like a function, and faster than one made of a generator
    """Run every matrix product on the thread that asks for it, in the whole process, inside a `with` block.

    Ctrl-C may fall between any two instructions here. A block that it keeps from closing closes when it is forgotten.
    """

    __slots__ = ("__weakref__",)

    def __enter__(self) -> None:
        global _before
        try:
            with _free_lock():
                _open.add(ref(self, _close))
                if not _before:
                    _before = [library.ask() for library in _libraries()]
                    for library in _libraries():
                        library.use(1)
        except BaseException:
            _close(ref(self))
            raise

    def __exit__(self, *_: object) -> None:
        _close(ref(self))


def one_thread_if_busy() -> AbstractContextManager[None]:
    """Return a context: one BLAS thread if half of the cores have had work of late, otherwise as many as before."""
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] >= (os.cpu_count() or 1) / 2
    return one_blas_thread() if busy else contextlib.nullcontext()


def suitable_threads(flops: float) -> AbstractContextManager[None]:
    """Return a reusable context for products of at most `flops`: one BLAS thread, or the library's choice if many."""
    return contextlib.nullcontext() if flops >= WORTHWHILE else one_blas_thread()


def _close(block: "ref[one_blas_thread]") -> None:
    with _free_lock():
        if _open == {block}:
            _restore()  # while it is still known to be open: what breaks this off has it done again
        _open.discard(block)
        if not _open:
            _restore()  # the last one may have been forgotten just now


def _free_lock() -> threading.RLock:
    """Return the lock, or another one: Ctrl-C between its taking and the block behind it leaves it taken for good."""
    global _lock
    lock = _lock
    if lock.acquire(timeout=PATIENCE):
        lock.release()
        return lock
    if _lock is lock:
        _lock = threading.RLock()
    return _lock


def _restore() -> None:
    global _before
    if _before:
        _use(_before)
        _before = []


def _begin_anew() -> None:
    """Forget, in a child of this process, the blocks of threads that stayed behind."""
    global _lock
    _lock = threading.RLock()
    _open.clear()
    _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def blas() -> dict[str, Any]:
    """Return what is known about NumPy's BLAS; nothing where there is none."""
    return next((library.controller.info() for library in _libraries()), {})


class _Library(NamedTuple):
    """A BLAS: what threadpoolctl knows about it, and how to ask it for its number of threads and to set it."""

    controller: Any
    ask: Callable[[], int]
    use: Callable[[int], Any]


@cache
def _libraries() -> list[_Library]:
    """Return each BLAS, NumPy's first; cached: the search takes longer than a step of a small model.

    A library that brings one along later is not asked: its products are not ours.
    """
    import numpy  # noqa: F401 - BLAS is found once it is loaded
    from threadpoolctl import ThreadpoolController

    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    controllers.sort(key=lambda library: "numpy" not in library.filepath)
    return [_Library(library, *_functions_of(library)) for library in controllers]


def _functions_of(library: Any) -> tuple[Callable[[], int], Callable[[int], Any]]:
    """Return the two functions of a BLAS: OpenBLAS's own, because threadpoolctl lets one thread alone use them."""
    if library.internal_api == "openblas" and getattr(library, "threading_layer", "") != "openmp":
        loaded = ctypes.CDLL(library.filepath)
        for prefix, suffix in _AFFIXES:
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(loaded, name) for name in names):
                return getattr(loaded, names[0]), getattr(loaded, names[1])
    return library.get_num_threads, library.set_num_threads
