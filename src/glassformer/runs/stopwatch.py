"""How fast a run goes."""

import time

from ..training.loop import StepRecord


class Stopwatch:
    """How fast a run goes, and how long it will take.

    `compiling` is the time spent in compilers so far. It says nothing about the pace, and neither does the first step,
    which also loads libraries: the time left is estimated from the steps after it.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.first, self.done = total, done, done
        self.began, self.tokens, self.compiling = time.perf_counter(), 0, 0.0
        self._pace_from, self._compiled_before = 0.0, 0.0

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        if self.done == self.first:
            self._pace_from = self.seconds
        elif self.done == self.first + 1:
            self._compiled_before = self.compiling  # known once the first step was shown
        self.tokens += record.tokens
        self.done = record.step

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
        taken = self.done - self.first - 1
        if taken < 1:
            return None
        pace = (self.seconds - self._pace_from - (self.compiling - self._compiled_before)) / taken
        return max(pace, 0.0) * (self.total - self.done)
