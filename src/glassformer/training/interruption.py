"""Ctrl-C at a moment when it would leave something half done."""

import threading

# Those of `signal` make enums of what they are given, which takes ten times as long.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(KeyboardInterrupt):
    """All processes of a run have agreed to stop after the same step, because one was asked to."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done. Only the main thread is ever interrupted."""
    before = getsignal(SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[tuple[int, Any]] = []
    signal(SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal(SIGINT, before)
    if came:
        before(*came[-1])
