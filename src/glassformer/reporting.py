"""What people are told: how far long work is, which those count who do it, and what kernels have to do without."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache


@cache
def log_once(fact: str) -> None:
    """Log, once in a process, that part of another library is missing or cannot be used, and what is done instead."""
    logging.getLogger("glassformer").warning(fact)


ShowCount = Callable[[int, int, str], None]
"""Shows how many are done, of how many, and what they are."""

_show: ContextVar[ShowCount | None] = ContextVar("show", default=None)


def report(done: int, total: int, what: str) -> None:
    """Tell how many are done, of how many, and what they are, if anything shows it."""
    show = _show.get()
    if show is not None:
        show(done, total, what)


@contextmanager
def reported_to(show: ShowCount) -> Iterator[None]:
    """Let `report` call this function inside a `with` block."""
    token = _show.set(show)
    try:
        yield
    finally:
        _show.reset(token)
