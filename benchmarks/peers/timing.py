"""Who is faster: contenders that take turns, so that whatever slows the machine slows them alike.

One round is A B C …, each for several steps in a row; the next round is A B C … again. A ratio is taken inside every
round and then the middle one of all rounds is reported, with the middle half of them as its spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from glassformer.core.errors import ConfigError

ROUND_SECONDS = 0.7
"""About how long one contender runs before the next has its turn."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 200
MOST_STEPS = 200
WARM_UP = 2
"""So many rounds are run before anything counts: what is compiled, allocated or cached on first use is not the step."""


class Contender(Protocol):
    """Something to be timed: `run` takes so many steps and returns the seconds of each."""

    name: str

    def run(self, steps: int) -> list[float]: ...


@dataclass(frozen=True)
class Spread:
    """The middle of a sample, and the first and third quartile, between which its middle half lies."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarize a sample of at least one value."""
        if not values:
            raise ConfigError("there is nothing to summarize", hint="measure at least once")
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def inverted(self, numerator: float = 1.0) -> Spread:
        """Return numerator / value, such as tokens per second for the seconds of so many tokens."""
        return Spread(numerator / self.median, numerator / self.high, numerator / self.low, self.count)


@dataclass(frozen=True)
class Race:
    """The seconds of every step, by contender and round."""

    rounds: Mapping[str, Sequence[Sequence[float]]]

    def seconds(self, name: str) -> Spread:
        """Summarize all steps of a contender."""
        return Spread.of([second for steps in self.rounds[name] for second in steps])

    def median(self, name: str) -> float:
        """Return the middle time of a contender's steps."""
        return self.seconds(name).median

    def fastest(self, names: Sequence[str]) -> str | None:
        """Return which of these has the lowest middle time; None if none of them ran."""
        return min((name for name in names if name in self.rounds), key=self.median, default=None)

    def times_faster(self, name: str, other: str) -> Spread:
        """Summarize, over the rounds, how many steps `name` takes while `other` takes one.

        ratio = median seconds of `other` / median seconds of `name`,  both of the same round
        """
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return Spread.of([statistics.median(theirs) / statistics.median(own) for own, theirs in pairs])


def race(
    contenders: Sequence[Contender],
    *,
    seconds: float,
    round_seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    talk: Callable[[str], None] = lambda text: None,
) -> Race:
    """Let the contenders take turns for about `seconds` in all, but for three rounds at least.

    Warming up is not counted in these seconds, nor in the results. A turn takes `round_seconds`; unless given, as
    long as `ROUND_SECONDS`, shorter where that would leave no time for three rounds.
    """
    if not seconds > 0:
        raise ConfigError(f"the time to measure is {seconds} seconds", hint="use a positive number, such as 20")
    if len({contender.name for contender in contenders}) != len(contenders):
        raise ConfigError("two contenders have the same name", hint="name each by what it is")
    if round_seconds is None:
        round_seconds = min(ROUND_SECONDS, seconds / (LEAST_ROUNDS * max(1, len(contenders))))
    steps: dict[str, int] = {}
    for contender in contenders:
        talk(f"warming up: {contender.name}")
        steps[contender.name] = _warm_up(contender, round_seconds)
    rounds: dict[str, list[list[float]]] = {contender.name: [] for contender in contenders}
    began = clock()
    for done in range(1, MOST_ROUNDS + 1):
        for contender in contenders:
            rounds[contender.name].append(contender.run(steps[contender.name]))
        spent = clock() - began
        # Another round would take as long as the average one so far.
        if done >= LEAST_ROUNDS and spent * (done + 1) / done > seconds:
            break
    return Race(rounds)


def _warm_up(contender: Contender, round_seconds: float) -> int:
    """Run a contender until it is warm; return how many of its steps make a round."""
    steps = 1
    for _ in range(WARM_UP):
        each = statistics.median(contender.run(steps))
        steps = max(1, min(MOST_STEPS, round(round_seconds / max(each, 1e-9))))
    return steps
