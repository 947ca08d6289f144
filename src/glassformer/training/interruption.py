"""Ctrl-C and SIGTERM: what ends a training from outside, and moments when it would leave something half done."""

import contextlib

# Those of `signal` make enums of what they are given, which takes ten times as long.
from _signal import SIG_DFL, SIG_IGN, SIGINT, SIGTERM, getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Iterator
from threading import get_ident, main_thread
from typing import Any


class Stopped(KeyboardInterrupt):
    """All processes of a run have agreed to stop after the same step, because one was asked to."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM, as schedulers and systems do that shut down."""


@contextlib.contextmanager
def heeding_termination() -> Iterator[None]:
    """Make SIGTERM raise `Terminated` inside a `with` block, once; from then on it is ignored.

    Where someone else has a handler for it, or another thread than the main one asks, nothing changes.
    """
    if get_ident() != main_thread().ident or getsignal(SIGTERM) != SIG_DFL:
        yield
        return

    def terminate(*_: object) -> None:
        signal(SIGTERM, SIG_IGN)
        raise Terminated

    signal(SIGTERM, terminate)
    try:
        yield
    finally:
        signal(SIGTERM, SIG_DFL)


class uninterrupted:  # noqa: N801 - used like a function, and twice as fast as one made of a generator
    """Hold Ctrl-C and SIGTERM back until a `with` block is done. Only the main thread is ever interrupted."""

    __slots__ = ("_before", "_came")

    def __enter__(self) -> None:
        self._came: list[tuple[int, Any]] = []
        self._before: dict[int, Any] = {}
        if get_ident() == main_thread().ident:
            for number in (SIGINT, SIGTERM):
                before = getsignal(number)
                if callable(before):
                    self._before[number] = before
                    signal(number, self._note)

    def _note(self, *arrival: Any) -> None:
        self._came.append(arrival)

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for number, before in self._before.items():
            signal(number, before)
        if self._came and error is None:  # an error ends the work as well
            self._before[self._came[-1][0]](*self._came[-1])
