"""One step of a run, and the steps that only move numbers: heads that are split, and put side by side again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..arrays import Array
from .tracing import Call


@dataclass(frozen=True, eq=False)
class Step:
    """One array, computed from others.

    rule       the row of the tables of formulas that says how
    call       the op, or the method of a registered layer
    inputs     what it read, by the name that it has there
    folded     which of these get their gradient with another step's
    """

    rule: str
    call: Call
    output: Array
    inputs: dict[str, Array]
    settings: dict[str, Any] = field(default_factory=dict)
    folded: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The name of the op, or of the method."""
        return self.call.name if self.call.is_method else f"ops.{self.call.name}"


MOVES = ("split_heads", "merge_heads")
"""Graph that only move numbers."""


def moved(step: Step, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return where an entry of x stands in what the step made of it."""
    return _split(step, index) if step.rule == "split_heads" else _merged(step, index)


def moved_back(step: Step, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return where an entry of the result stood in x."""
    return _merged(step, index) if step.rule == "split_heads" else _split(step, index)


def _split(step: Step, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """(n, t, h·C + c) to (n, h, t, c)."""
    *lead, position, feature = index
    channels = (step.output if step.rule == "split_heads" else step.inputs["x"]).shape[-1]
    return (*lead, feature // channels, position, feature % channels)


def _merged(step: Step, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """(n, h, t, c) to (n, t, h·C + c)."""
    *lead, head, position, channel = index
    channels = (step.output if step.rule == "split_heads" else step.inputs["x"]).shape[-1]
    return (*lead, position, head * channels + channel)
