"""What a benchmark found: figures of every contender, the bars it was held against, and what could not be measured."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .timing import Race, Spread

SECONDS, TOKENS, BYTES = "seconds", "tokens/s", "bytes"


@dataclass(frozen=True)
class Figure:
    """One contender: its figure in the report's unit, and how it compares with the report's baseline."""

    name: str
    value: Spread
    ratio: Spread | None = None


def compared(result: Race, baseline: str) -> list[Figure]:
    """Return everyone's seconds in a race, and how many times as fast as the baseline that is."""
    return [Figure(name, result.seconds(name), result.times_faster(name, baseline)) for name in result.rounds]


@dataclass(frozen=True)
class Bar:
    """A bar: at least so much, or with `at_most` no more."""

    what: str
    value: float
    bar: float
    at_most: bool = False

    @property
    def ok(self) -> bool:
        """Whether the bar is reached; a figure that is no number reaches none."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(frozen=True)
class Check:
    """That contenders computed the same: the largest difference found and the one allowed."""

    what: str
    error: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether the difference is within the limit."""
        return self.error <= self.limit


@dataclass(frozen=True)
class Report:
    """One table of a benchmark.

    name, title   train/small, and the same in words
    unit          of the figures: seconds, tokens/s or bytes
    ratio         what the ratios mean, such as "× as fast as PyTorch eager"; empty if there are none
    notes         what could not be measured and why, and what one must know to read the figures
    facts         further numbers, by name
    """

    name: str
    title: str
    unit: str
    ratio: str
    figures: Sequence[Figure]
    bars: Sequence[Bar] = ()
    checks: Sequence[Check] = ()
    notes: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all contenders computed the same; a missed bar is a result, not a failure."""
        return all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        result = {**asdict(self), "ok": self.ok}
        for name in ("bars", "checks"):
            for row, entry in zip(result[name], getattr(self, name), strict=True):
                row["ok"] = entry.ok
        return {key: list(value) if isinstance(value, tuple) else value for key, value in result.items()}
