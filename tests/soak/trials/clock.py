"""Time as a process has it: a busy machine, or one that stops everything for minutes, makes no case late.

What computes is measured by the processor's time. What waits, such as for a lock that nobody gives back, takes none of
it: this is measured by the clock on the wall, which stands still while the process is stopped, and has more patience.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

from .trial import LateError

PATIENCE = 10
"""A case may wait so many times as long as it may compute."""
LONGEST = 1.0
"""Seconds between two looks at a clock; whatever is missing beyond was not ours."""


class AwakeClock:
    """Seconds in which this process was awake, for those who look at it again and again."""

    def __init__(self) -> None:
        self._passed, self._last = 0.0, time.monotonic()

    def passed(self) -> float:
        """Return the seconds since it was made, without those in which the process was stopped."""
        now = time.monotonic()
        self._passed += min(now - self._last, LONGEST)
        self._last = now
        return self._passed


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End what computes for longer than this, or waits for much longer."""
    alarms = 0

    def waited(*_: object) -> None:
        nonlocal alarms
        alarms += 1  # those that come while the process is stopped are one
        if alarms >= PATIENCE:
            raise LateError(f"it waited for more than {PATIENCE * seconds:.0f} s")

    def computed(*_: object) -> None:
        raise LateError(f"it took more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, waited), signal.signal(signal.SIGPROF, computed)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGPROF, before[1])
