"""What every step of a training did, as records and as arrays to plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays import Array
from .evaluate import Evaluation
from .loop import StepRecord


class History(list[StepRecord]):
    """The records of all steps, in order.

        history.step, history.loss              one number for each step
        history.val_step, history.val_loss      one for each evaluation, and history.accuracy where it was asked for

    >>> from glassformer.training import History
    >>> history = History.from_metrics([{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5, "val_loss": 2.6}])
    >>> history.loss.tolist(), history.val_step.tolist(), history.val_loss.tolist()
    ([3.0, 2.5], [2], [2.6])
    """

    @classmethod
    def from_metrics(cls, lines: Iterable[Mapping[str, Any]]) -> History:
        """Return the history that `metrics` described; losses that JSON has no number for are NaN."""
        return cls(map(_record, lines))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict for each step, as a run folder's metrics.jsonl holds them."""
        return [record.to_dict() for record in self]

    @property
    def step(self) -> Array:
        """The number of each step, (N,)."""
        return np.array([record.step for record in self], dtype=np.int64)

    @property
    def loss(self) -> Array:
        """The training loss of each step, (N,): of one batch, before the step, with dropout on."""
        return np.array([record.loss for record in self])

    @property
    def seconds(self) -> Array:
        """How long each step took, (N,), evaluations left out."""
        return np.array([record.seconds for record in self])

    @property
    def val_step(self) -> Array:
        """The steps after which there was an evaluation, (E,)."""
        return np.array([record.step for record in self if record.evaluation is not None], dtype=np.int64)

    @property
    def val_loss(self) -> Array:
        """The validation loss of each evaluation, (E,)."""
        return np.array([record.evaluation.loss for record in self if record.evaluation is not None])

    @property
    def accuracy(self) -> Array:
        """The share of right answers of each evaluation, (E,); NaN where it is not asked for."""
        found = [record.evaluation.accuracy for record in self if record.evaluation is not None]
        return np.array([np.nan if share is None else share for share in found])

    def __repr__(self) -> str:
        if not self:
            return "History(no steps)"
        validation = f", validation loss {self.val_loss[-1]:.4f}" if len(self.val_loss) else ""
        return f"History({len(self):,} steps, loss {self[-1].loss:.4f}{validation})"


def _record(line: Mapping[str, Any]) -> StepRecord:
    evaluation = None
    if "val_loss" in line:
        evaluation = Evaluation(_number(line["val_loss"]), 0, 0, line.get("accuracy"))
    return StepRecord(
        step=line["step"],
        loss=_number(line["loss"]),
        lr=line.get("lr", np.nan),
        grad_norm=_number(line.get("grad_norm")),
        tokens=line.get("tokens", 0),
        seconds=line.get("seconds", np.nan),
        refused=line.get("refused", False),
        evaluation=evaluation,
        is_best=line.get("best", False),
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
