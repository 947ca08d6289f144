"""The speed of a run, its remaining time, and the time of compilers."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..core.dispatch import Engine

if TYPE_CHECKING:
    from ..training.loop import StepRecord

Show = Callable[["StepRecord"], None]
"""Shows one step, after the clock has counted it."""


class Stopwatch:
    """The speed of a run, and its remaining time.

    Compiling says nothing about the pace, and neither does the first step, which also loads libraries: the time left
    is estimated from the steps after it.
    """

    def __init__(self, total: int = 0, done: int = 0) -> None:
        self.total, self.first, self.done = total, done, done
        self.began, self.tokens = time.perf_counter(), 0
        self.kernels = 0  # compiled so far
        self._depth, self._compiled, self._since = 0, 0.0, 0.0
        self._counted: tuple[int, float] | None = None  # the first count, and when it was made, compiling left out
        self._left: tuple[float, float] | None = None  # seconds to go, and when that was estimated

    def add(self, record: StepRecord) -> None:
        """Count one step; what was compiled for it is compiled by now."""
        self.end_compiling()
        self.tokens += record.tokens
        self.count(record.step)

    def count(self, done: int) -> None:
        """Take in how much is done, and estimate how long the rest will take; a lower count begins other work."""
        before, self.done, now = self.done, done, self.seconds - self.compiling
        if self._counted is None or done < before:
            self._counted, self._left = (done, now), None
        elif done > self._counted[0]:
            self._left = (now - self._counted[1]) / (done - self._counted[0]) * (self.total - done), now

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self.began

    @property
    def tokens_per_second(self) -> float:
        """Tokens trained on per second, evaluations included in the time, compiling excluded after the first step."""
        return self.tokens / max(self.seconds - (self.compiling if self.done - self.first > 1 else 0.0), 1e-9)

    @property
    def remaining(self) -> float | None:
        """Seconds to go at this pace; None before the second step."""
        if self._left is None:
            return None
        left, estimated = self._left
        return max(left - (self.seconds - self.compiling - estimated), 0.0)

    @property
    def is_compiling(self) -> bool:
        """Whether something is being compiled now."""
        return self._depth > 0

    @property
    def compiling(self) -> float:
        """Seconds spent in compilers."""
        return self._compiled + (time.perf_counter() - self._since if self.is_compiling else 0.0)

    def begin_compiling(self) -> None:
        """Note that a compilation begins, perhaps inside another one."""
        if not self._depth:
            self._since = time.perf_counter()
            self.kernels += 1
        self._depth += 1

    def end_compiling(self) -> None:
        """Note that it ends."""
        if self._depth == 1:
            self._compiled = self.compiling
        self._depth = max(self._depth - 1, 0)


def duration(seconds: float) -> str:
    """Write a time as 1:05 or 2:00:00."""
    total = round(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def compilation(clock: Stopwatch, engine: Engine) -> str:
    """Return in words what an engine compiles."""
    if engine.name == "jax":
        return "compiling the step"
    number = f", number {clock.kernels:,}" if clock.kernels > 1 else ""
    return f"compiling kernels{number}; they are cached for the next start"


@contextlib.contextmanager
def timing_compilers(
    clock: Stopwatch, engine: Engine, begun: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Time what an engine compiles inside a `with` block; `begun` is called when it begins for the first time.

    Numba reports every kernel. JAX compiles the whole step when the first one is taken, and reports nothing.
    """
    if engine.name != "cpu":
        if engine.name == "jax" and clock.total:
            clock.begin_compiling()
            begun(compilation(clock, engine))
        yield
        return
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: object) -> None:
            is_first = not clock.kernels
            clock.begin_compiling()
            if is_first:
                begun(compilation(clock, engine))

        def on_end(self, event: object) -> None:
            clock.end_compiling()

    logger = logging.getLogger("glassformer")
    logger.addFilter(_is_news)
    try:
        with event.install_listener("numba:compile", Listener()):
            yield
    finally:
        logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out the engine's own message about compiling, which is shown here."""
    return not record.getMessage().startswith("compiling kernels")
