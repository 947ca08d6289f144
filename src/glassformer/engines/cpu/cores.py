"""Several cores at once: one Python thread each, which compiled kernels and BLAS let run freely."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import TypeVar

from ...core.blas import limits, one_blas_thread

Result = TypeVar("Result")

_here = threading.local()
_limit: ContextVar[int | None] = ContextVar("limit", default=None)


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


@contextmanager
def at_most(number: int) -> Iterator[None]:
    """Use this many cores inside a `with` block, in this thread or task alone."""
    token = _limit.set(number)
    try:
        yield
    finally:
        _limit.reset(token)


def each(tasks: Iterable[Callable[[], Result]]) -> list[Result]:
    """Run tasks at the same time, one per core, with one BLAS thread each; return their results in order.

    A core that is done takes the next task; the first is done on the calling thread. Inside a task, and on one core,
    they run one after the other.
    """
    tasks = list(tasks)
    workers = min(cores(), len(tasks)) if len(tasks) > 1 else 1  # to ask how many there are takes long
    if workers < 2:
        return [task() for task in tasks]
    results, waiting = dict[int, Result](), deque(range(workers, len(tasks)))

    def work(number: int) -> None:
        while True:
            results[number] = _alone(tasks[number])
            try:
                number = waiting.popleft()
            except IndexError:
                return

    with one_blas_thread():
        # Each in a copy of the context here: what NumPy warns about is a part of it.
        rest = [_pool(cores()).submit(copy_context().run, work, number) for number in range(1, workers)]
        try:
            work(0)
        finally:
            waiting.clear()  # after an error
            for future in rest:  # nothing may still be running when an error leaves here
                future.exception()
        for future in rest:
            future.result()
    return [results[number] for number in range(len(tasks))]


def _alone(task: Callable[[], Result]) -> Result:
    before = getattr(_here, "busy", False)
    _here.busy = True
    try:
        return task()
    finally:
        _here.busy = before


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="glassformer")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay behind in the parent
