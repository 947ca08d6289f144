"""What a trial is: cases by number, each of which survives or is lost.

All that is left to chance in a case follows from its number, its seed, so that any case can be tried again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Prepare = Callable[[Path], None]
"""Writes into a folder what all cases read."""
Attempt = Callable[[Path, Path, int], None]
"""Tries the case of a seed, given the folder that all share and an empty one of its own; raises where it is lost."""


class LostError(Exception):
    """A case did not survive, and why."""


class LateError(BaseException):
    """A case has taken too long, and how long; not an `Exception`, so that nobody takes it for one of their own.

    It may be the machine's fault: the case is tried again, alone, before it counts.
    """


def demand(holds: bool, otherwise: str) -> None:
    """Lose the case unless something holds."""
    if not holds:
        raise LostError(otherwise)


def described(error: BaseException) -> str:
    """Say what nobody handled, and where in our own code it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "glassformer" in frame.filename] or frames
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "nowhere"
    return f"unhandled {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]} ({place})"


@dataclass(frozen=True)
class Trial:
    """One row of the table.

    kinds     what cases are about; case number i is of kind i modulo their number, so a kind may be named twice
    full      cases of the whole campaign; quick: of the short one
    limit     seconds of the processor in which a case must end; see `clock`
    memory    MB that a case may take, None: it is not watched
    alone     whether its cases are tried one after the other, by one process
    seconds   where cases are counted by time instead: how long the whole trial lasts, and the short one
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    full: int
    quick: int
    prepare: Prepare
    attempt: Attempt
    limit: float = 10.0
    memory: int | None = None
    alone: bool = False
    seconds: tuple[float, float] | None = None

    def kind(self, seed: int) -> str:
        """Return what a case is about."""
        return self.kinds[seed % len(self.kinds)]


class Loss(NamedTuple):
    seed: int
    kind: str
    reason: str


@dataclass
class Tally:
    """What came of a trial."""

    trial: Trial
    tried: dict[str, int] = field(default_factory=dict)  # by kind
    losses: list[Loss] = field(default_factory=list)
    again: list[Loss] = field(default_factory=list)  # late beside others, and therefore tried again alone
    seconds: float = 0.0
    processor: float = 0.0  # seconds of one core

    def add(self, seed: int, reason: str | None) -> None:
        """Count one case; `reason` says why it was lost."""
        kind = self.trial.kind(seed)
        self.tried[kind] = self.tried.get(kind, 0) + 1
        if reason is not None:
            self.losses.append(Loss(seed, kind, reason))

    @property
    def total(self) -> int:
        """How many cases were tried."""
        return sum(self.tried.values())

    @property
    def survived(self) -> int:
        """How many were not lost."""
        return self.total - len(self.losses)
