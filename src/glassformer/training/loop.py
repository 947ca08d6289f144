"""The training loop: an iterator that yields the state after every step and a record of it.

    schedule → step → judgement → evaluation → record

A `Trainer` takes the steps; a session writes records and checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ..config import TransformerConfig
from ..core.arrays import Array, Tree
from ..core.errors import TrainingError
from ..core.threads import suitable_threads as threads_for
from ..data.examples import Dataset
from ..models import Batch
from .evaluate import Evaluation
from .recipe import Recipe
from .trainer import Trainer, TrainingState, final_params

REFUSALS = 10
"""This many refused steps in a row end a run."""


@dataclass(frozen=True)
class StepRecord:
    """The figures of one step; evaluation figures only where one took place."""

    step: int  # steps taken so far, this one included
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    seconds: float
    refused: bool = False
    evaluation: Evaluation | None = None
    is_best: bool = False
    stop: bool = False  # nothing improved for as long as the recipe's patience

    def to_dict(self) -> dict[str, Any]:
        """Return one line of a metrics file."""
        line: dict[str, Any] = {"step": self.step, "loss": finite(self.loss), "lr": self.lr}
        line |= {"grad_norm": finite(self.grad_norm), "tokens": self.tokens, "seconds": round(self.seconds, 6)}
        if self.refused:
            line["refused"] = True
        if self.evaluation is not None:
            line |= {"val_loss": finite(self.evaluation.loss), "best": self.is_best}
            if self.evaluation.accuracy is not None:
                line["accuracy"] = self.evaluation.accuracy
            if self.evaluation.learned is not None:
                line["train_accuracy"] = self.evaluation.learned
        return line

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> StepRecord:
        """Return the record of a line; numbers that JSON has no word for are NaN."""
        evaluation = None
        if "val_loss" in line:
            right, learned = line.get("accuracy"), line.get("train_accuracy")
            evaluation = Evaluation(number(line["val_loss"]), 0, 0, right, learned=learned)
        loss, norm = number(line["loss"]), number(line.get("grad_norm"))
        lr, seconds, tokens = line.get("lr", math.nan), line.get("seconds", math.nan), line.get("tokens", 0)
        refused, is_best = line.get("refused", False), line.get("best", False)
        return cls(line["step"], loss, lr, norm, tokens, seconds, refused, evaluation, is_best)


def finite(value: float | None) -> float | None:
    """Return a number for a metrics file: None for those that JSON has no word for."""
    return None if value is None or not math.isfinite(value) else float(value)


def number(value: float | None) -> float:
    """Return a number of a metrics file, in which None stands for those that JSON has no word for."""
    return math.nan if value is None else float(value)


class History(list[StepRecord]):
    """The records of all steps, in order.

        history.step, history.loss              one number for each step
        history.val_step, history.val_loss      one for each evaluation, and history.accuracy, history.train_accuracy
                                                where right answers are defined

    >>> from glassformer.training import History
    >>> history = History.from_metrics([{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5, "val_loss": 2.6}])
    >>> history.loss.tolist(), history.val_step.tolist(), history.val_loss.tolist()
    ([3.0, 2.5], [2], [2.6])
    """

    @classmethod
    def from_metrics(cls, lines: Iterable[Mapping[str, Any]]) -> History:
        """Return the history that `metrics` described; losses that JSON has no number for are NaN."""
        return cls(map(StepRecord.from_dict, lines))

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
        """Seconds of each step, (N,), evaluations left out."""
        return np.array([record.seconds for record in self])

    @property
    def val_step(self) -> Array:
        """The steps after which there was an evaluation, (E,)."""
        return np.array([record.step for record in self if record.evaluation], dtype=np.int64)

    @property
    def val_loss(self) -> Array:
        """The validation loss of each evaluation, (E,)."""
        return np.array([record.evaluation.loss for record in self if record.evaluation])

    @property
    def accuracy(self) -> Array:
        """The share of right answers of each evaluation, (E,); NaN where it is not asked for."""
        return np.array([number(record.evaluation.accuracy) for record in self if record.evaluation])

    @property
    def train_accuracy(self) -> Array:
        """The share of right answers to the batch of the step before each evaluation, (E,); NaN as in `accuracy`."""
        return np.array([number(record.evaluation.learned) for record in self if record.evaluation])

    def __repr__(self) -> str:
        if not self:
            return "History(no steps)"
        validation = f", validation loss {self.val_loss[-1]:.4f}" if len(self.val_loss) else ""
        return f"History({len(self):,} steps, loss {self[-1].loss:.4f}{validation})"


Keep: TypeAlias = Callable[[TrainingState, StepRecord | None], None]
"""Receives a state that replaced the one before in memory; its record is None if the step was refused."""


def training_steps(
    trainer: Trainer,
    data: Dataset,
    state: TrainingState,
    *,
    evaluate: Callable[[Tree], Evaluation] | None = None,
    keep: Keep | None = None,
) -> Iterator[tuple[TrainingState, StepRecord]]:
    """Train from `state` to the recipe's last step; `evaluate` is called with the parameters that count.

    With `keep`, a step without an evaluation may overwrite the state before; `keep` receives the new state and its
    record before Ctrl-C can come in between.
    """
    recipe, schedule = trainer.recipe, trainer.recipe.build_schedule()
    while state.step < recipe.steps and not out_of_patience(state, recipe):
        evaluates = evaluate is not None and is_due(state.step + 1, recipe)
        state, record = take_step(trainer, data, state, schedule(state.step), keep, overwrite=not evaluates)
        if evaluate is not None and evaluates:
            params = trainer.effective(final_params(state, recipe))
            state, record = apply_evaluation(state, record, recipe, evaluate(params))
        yield state, record


def suitable_threads(config: TransformerConfig, batch: int) -> contextlib.AbstractContextManager[None]:
    """Return a reusable context: one BLAS thread for small models, the library's choice for larger ones."""
    largest = 2 * batch * config.context * config.width * max(config.hidden, config.vocab)  # product in a step
    return threads_for(largest)


def is_due(step: int, recipe: Recipe) -> bool:
    """Return whether an evaluation follows this step."""
    return step % recipe.eval_every == 0 or step == recipe.steps


def out_of_patience(state: TrainingState, recipe: Recipe) -> bool:
    """Return whether evaluations have not improved for as long as the recipe's patience."""
    return recipe.patience is not None and state.stale >= recipe.patience


def take_step(
    trainer: Trainer, data: Dataset, state: TrainingState, lr: float, keep: Keep | None, *, overwrite: bool
) -> tuple[TrainingState, StepRecord]:
    """Take one step; return the state after it, and its record."""
    began = time.perf_counter()
    batch = trainer.batch(data, state.step)

    def counted(after: TrainingState, figures: Iterable[float]) -> tuple[TrainingState, StepRecord]:
        loss, norm, moved = figures
        if not moved and keep is not None:
            keep(after, None)  # the same numbers, perhaps in other memory
        after = after._replace(step=state.step + 1, refused=0) if moved else refuse_step(trainer, after, loss, norm)
        seconds = time.perf_counter() - began
        return after, StepRecord(after.step, loss, lr, norm, tokens_of(batch), seconds, refused=not moved)

    def note(after: TrainingState, figures: Iterable[float]) -> None:
        assert keep is not None
        kept.append(counted(after, figures))
        keep(*kept[0])

    kept: list[tuple[TrainingState, StepRecord]] = []
    after, figures = trainer.step(state, batch, lr, keep=note if overwrite and keep is not None else None)
    return kept[0] if kept else counted(after, figures)


def tokens_of(batch: Batch) -> int:
    """Return how many tokens a batch has, padding included."""
    return math.prod(batch.tokens.shape) + (0 if batch.source is None else math.prod(batch.source.shape))


def refuse_step(trainer: Trainer, state: TrainingState, loss: float, norm: float) -> TrainingState:
    """Advance the step number only; raise after too many refused steps in a row."""
    if trainer.is_excused(state):
        return state._replace(step=state.step + 1)
    if state.refused + 1 >= REFUSALS:
        raise TrainingError(
            f"the last {REFUSALS} steps were refused, up to step {state.step + 1}: "
            f"the loss is {loss}, the gradient norm {norm}; the weights are those of the last good step",
            hint="start again with a lower learning rate, a longer warmup or a smaller clip",
        )
    return state._replace(step=state.step + 1, refused=state.refused + 1)


def cost(evaluation: Evaluation, recipe: Recipe) -> float:
    """Return what checkpoints are chosen by, the lower the better: the loss, or the share of wrong answers."""
    return 1 - number(evaluation.accuracy) if recipe.keep == "accurate" else evaluation.loss


def apply_evaluation(
    state: TrainingState, record: StepRecord, recipe: Recipe, evaluation: Evaluation
) -> tuple[TrainingState, StepRecord]:
    """Return the state and record after an evaluation: whether it is the best, and whether to stop."""
    found = cost(evaluation, recipe)
    is_best = math.isfinite(evaluation.loss) and (state.best is None or found < state.best)
    stale = 0 if is_best else state.stale + 1
    state = state._replace(best=found if is_best else state.best, stale=stale)
    stop = out_of_patience(state, recipe)
    return state, replace(record, evaluation=evaluation, is_best=is_best, stop=stop)
