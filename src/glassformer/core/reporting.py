"""Messages between a program and its user: the progress of long work, missing parts of libraries, and questions.

Those who do the work count and ask; what talks to people, such as the command line, sets who shows and who answers.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value inside a `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@cache
def log_once(fact: str) -> None:
    """Log, once in a process, that part of another library is missing or cannot be used, and what is done instead."""
    import logging  # here, because most programs have nothing to report

    logging.getLogger("glassformer").warning(fact)


ShowCount = Callable[[int, int, str], None]
"""Shows how many are done, of how many, and what they are."""

_show: ContextVar[ShowCount | None] = ContextVar("show", default=None)


def report(done: int, total: int, what: str) -> None:
    """Report how many are done, of how many, and what they are, if anything shows it."""
    show = _show.get()
    if show is not None:
        show(done, total, what)


def reported_to(show: ShowCount) -> AbstractContextManager[None]:
    """Make `report` call this function inside a `with` block."""
    return during(_show, show)


# --- questions -------------------------------------------------------------------------------------------------------

ask: Callable[[str], bool] = lambda question: False  # noqa: E731
"""Asks the user a question; the command line replaces it: a program has no terminal to ask at."""

_grants: list[bool] = [False]  # one more for each open `granted` block


@contextmanager
def granted(wanted: bool | None) -> Iterator[None]:
    """Trust the Python files of runs that are opened inside the block, or not; None: as outside of it."""
    _grants.append(_grants[-1] if wanted is None else wanted)
    try:
        yield
    finally:
        _grants.pop()


def is_granted() -> bool:
    """Return whether the Python files of runs are trusted here."""
    return _grants[-1]
