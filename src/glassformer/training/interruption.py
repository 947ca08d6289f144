"""Ctrl-C at a moment when it would leave something half done."""

# Those of `signal` make enums of what they are given, which takes ten times as long.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from threading import get_ident, main_thread
from typing import Any


class Stopped(KeyboardInterrupt):
    """All processes of a run have agreed to stop after the same step, because one was asked to."""


class uninterrupted:  # noqa: N801 - used like a function, and twice as fast as one made of a generator
    """Let Ctrl-C wait until a `with` block is done. Only the main thread is ever interrupted."""

    __slots__ = ("_before", "_came")

    def __enter__(self) -> None:
        before = getsignal(SIGINT)
        self._came: list[tuple[int, Any]] = []
        self._before = before if callable(before) and get_ident() == main_thread().ident else None
        if self._before is not None:
            signal(SIGINT, lambda *arrival: self._came.append(arrival))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._before is not None:
            signal(SIGINT, self._before)
            if self._came and error is None:  # an error ends the work as well
                self._before(*self._came[-1])
