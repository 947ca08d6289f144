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
        return self.tokens / max(self._working, 1e-9)

    @property
    def remaining(self) -> float:
        """Seconds to go at this pace."""
        taken = self.done - self.first
        return self._working / max(taken, 1) * (self.total - self.done)

    @property
    def _working(self) -> float:
        """Seconds that tell the pace: not those of compiling, once there is a step beside the one that was compiled."""
        return self.seconds - (self.compiling if self.done - self.first > 1 else 0.0)
