"""How fast a run goes."""

import time

from ..training.loop import StepRecord


class Stopwatch:
    """How fast a run goes, and how long it will take.

    `compiling` is the part of its time that went into compiling, which comes once: it tells nothing about the pace.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.first, self.done = total, done, done
        self.began, self.tokens, self.compiling = time.perf_counter(), 0, 0.0

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        self.tokens += record.tokens
        self.done = record.step

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self.began

    @property
    def tokens_per_second(self) -> float:
        """Tokens trained on per second, evaluations included in the time."""
        return self.tokens / max(self.seconds - self.compiling, 1e-9)

    @property
    def remaining(self) -> float:
        """Seconds to go at this pace."""
        taken = self.done - self.first
        return (self.seconds - self.compiling) / max(taken, 1) * (self.total - self.done)
