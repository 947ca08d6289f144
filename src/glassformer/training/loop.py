"""The training loop: an iterator that yields one record per step and the state after it.

A state is everything the future depends on. Batches and dropout follow from the seed and the step number, so a run
that continues from a stored state computes the very same bits as one that was never interrupted.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..arrays import Tree
from ..data.examples import Dataset, count_targets
from ..errors import TrainingError
from ..models import Batch, Model
from ..parallel import loss_and_grads
from ..tree import flatten
from .ema import EMA
from .evaluate import Evaluation
from .gradients import accumulate, all_finite, clip, global_norm
from .interruption import uninterrupted
from .optimizer import Optimizer
from .parametrization import WHOLE, Parametrization
from .recipe import Recipe

REFUSALS = 10
"""So many refused steps in a row end a run."""


class TrainingState(NamedTuple):
    """Everything the rest of a run depends on, after `step` steps."""

    step: int
    params: Tree  # what is trained: all parameters, or the adapters beside frozen ones
    optimizer: Tree
    ema: Tree | None = None
    best: float | None = None  # the lowest validation loss so far
    stale: int = 0  # evaluations since
    refused: int = 0  # refused steps in a row
    scaling: Tree | None = None  # by how much float16 gradients are enlarged


@dataclass(frozen=True)
class StepRecord:
    """What one step did; evaluation figures only where one took place."""

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
        line: dict[str, Any] = {
            "step": self.step,
            "loss": _finite(self.loss),
            "lr": self.lr,
            "grad_norm": _finite(self.grad_norm),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 6),
        }
        if self.refused:
            line["refused"] = True
        if self.evaluation is not None:
            line |= {"val_loss": _finite(self.evaluation.loss), "best": self.is_best}
            if self.evaluation.accuracy is not None:
                line["accuracy"] = self.evaluation.accuracy
        return line


def _finite(number: float) -> float | None:
    """Return the number, or None where it is none that JSON knows."""
    return number if np.isfinite(number) else None


def start(model: Model, recipe: Recipe, params: Tree | None = None) -> TrainingState:
    """Return the state before the first step; what is trained is drawn from the recipe's seed unless given."""
    params = model.init(recipe.seed) if params is None else params
    ema = None if recipe.ema is None else EMA(recipe.ema).init(params)
    return TrainingState(0, params, recipe.build_optimizer().init(params), ema)


def final_params(state: TrainingState, recipe: Recipe) -> Tree:
    """Return what counts of what was trained: the moving average where there is one."""
    return state.params if state.ema is None else EMA(recipe.ema or 0.0).read(state.ema, state.params)


def training_steps(
    model: Model,
    recipe: Recipe,
    data: Dataset,
    state: TrainingState,
    *,
    evaluate: Callable[[Tree], Evaluation] | None = None,
    parametrization: Parametrization = WHOLE,
    overwrite: bool = False,
    keep: Callable[[TrainingState, StepRecord], None] | None = None,
) -> Iterator[tuple[TrainingState, StepRecord]]:
    """Train from `state` to the recipe's last step; `evaluate` is called with the parameters that count.

    With `overwrite`, a step that is not followed by an evaluation is taken in the memory of the state before, which is
    then lost; `keep` is told the new one and its record before Ctrl-C can come in between.
    """
    optimizer, schedule = recipe.build_optimizer(), recipe.build_schedule()
    step_in_place = None
    while state.step < recipe.steps and not out_of_patience(state, recipe):
        began = time.perf_counter()
        lr = schedule(state.step)
        evaluates = evaluate is not None and is_due(state.step + 1, recipe)
        # What overflows here needs no warning of its own: the step is refused.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            loss, grads, tokens = _step_gradients(model, recipe, data, state, parametrization)
            grads, norm = clip(grads, recipe.clip) if recipe.clip else (grads, global_norm(grads))
            record_of = partial(new_record, began, state.step + 1, loss, lr, float(norm), tokens)
            # A finite norm says that all gradients are finite.
            finite = math.isfinite(loss) and math.isfinite(norm)
            if finite and overwrite and not evaluates and optimizer.is_bounded(lr):
                step_in_place = step_in_place or optimizer.in_place(state.params, state.optimizer)
                with uninterrupted():
                    step_in_place(grads, lr)
                    state = _after(state, recipe)
                    record = record_of()
                    if keep is not None:
                        keep(state, record)
            else:
                moved = _moved(state, optimizer, recipe, grads, lr) if finite else state
                # A huge step can still leave the range of the weights.
                refused = not (finite and all_finite(moved.params))
                state = refuse(state, loss, float(norm)) if refused else moved
                record = record_of(refused=refused)
                step_in_place = None
        if evaluate is not None and evaluates:
            params = parametrization.effective(final_params(state, recipe))
            state, record = evaluated(state, record, recipe, evaluate(params))
        yield state, record


def is_due(step: int, recipe: Recipe) -> bool:
    """Tell whether an evaluation follows this step."""
    return step % recipe.eval_every == 0 or step == recipe.steps


def new_record(
    began: float, step: int, loss: float, lr: float, norm: float, tokens: int, *, refused: bool = False
) -> StepRecord:
    return StepRecord(step, loss, lr, norm, tokens, time.perf_counter() - began, refused)


def _step_gradients(
    model: Model, recipe: Recipe, data: Dataset, state: TrainingState, parametrization: Parametrization
) -> tuple[float, Tree, int]:
    """Return the loss and the gradients of one step's batch, by dotted names, and how many tokens it has."""
    batch = data.batch(state.step, recipe.batch, recipe.seed)
    key = ops.fold_key(ops.new_key(recipe.seed), state.step) if drops(model) else None
    tokens = int(np.size(batch.tokens)) + (0 if batch.source is None else int(np.size(batch.source)))
    params = parametrization.effective(state.params)

    def gradients(part: Batch, part_key: Any) -> tuple[Any, Tree]:
        settings: dict[str, Any] = {"key": part_key, "smoothing": recipe.label_smoothing}
        loss, grads = loss_and_grads(model, params, part, shards=recipe.shards or 1, **settings)
        return loss, parametrization.pull_back(state.params, grads)

    if recipe.accumulate == 1:
        loss, grads = gradients(batch, key)
        return float(loss), flatten(grads), tokens
    parts = (
        (*gradients(part, None if key is None else ops.fold_key(key, i)), n)
        for i, (part, n) in enumerate(_microbatches(batch, recipe.accumulate))
    )
    loss, grads, _ = accumulate(parts)
    return float(loss), flatten(grads), tokens


def drops(model: Model) -> bool:
    """Tell whether a model uses dropout anywhere, and so needs a key."""
    config = model.config
    return bool(config.dropout or config.weight_dropout or config.input_dropout)


def _microbatches(batch: Batch, parts: int) -> Iterator[tuple[Batch, int]]:
    """Cut a batch into parts of nearly the same number of examples, each with its number of counted targets."""
    borders = np.linspace(0, len(batch.tokens), parts + 1).astype(int)
    for start_, stop in itertools.pairwise(borders):
        part = Batch(*(None if array is None else array[start_:stop] for array in batch))
        if start_ < stop:
            yield part, count_targets(part)


def _moved(state: TrainingState, optimizer: Optimizer, recipe: Recipe, grads: Tree, lr: float) -> TrainingState:
    """Return the state after the optimizer's step, still to be judged."""
    params, moments = optimizer.update(state.params, grads, state.optimizer, lr=lr)
    return _after(state._replace(params=params, optimizer=moments), recipe)


def _after(state: TrainingState, recipe: Recipe) -> TrainingState:
    """Return a state whose parameters have moved with all that follows from it."""
    average = None if state.ema is None else EMA(recipe.ema or 0.0).update(state.ema, state.params)
    return state._replace(step=state.step + 1, ema=average, refused=0)


def refuse(state: TrainingState, loss: float, norm: float) -> TrainingState:
    """Leave everything but the step number as it is; give up when it happens again and again."""
    if state.refused + 1 >= REFUSALS:
        raise TrainingError(
            f"the last {REFUSALS} steps were refused, up to step {state.step + 1}: "
            f"the loss is {loss}, the gradient norm {norm}; the weights are those of the last good step",
            hint="start again with a lower learning rate, a longer warmup or a smaller clip",
        )
    return state._replace(step=state.step + 1, refused=state.refused + 1)


def out_of_patience(state: TrainingState, recipe: Recipe) -> bool:
    return recipe.patience is not None and state.stale >= recipe.patience


def evaluated(
    state: TrainingState, record: StepRecord, recipe: Recipe, evaluation: Evaluation
) -> tuple[TrainingState, StepRecord]:
    """Note an evaluation: whether it is the best, and whether it is time to stop."""
    is_best = bool(np.isfinite(evaluation.loss)) and (state.best is None or evaluation.loss < state.best)
    stale = 0 if is_best else state.stale + 1
    state = state._replace(best=evaluation.loss if is_best else state.best, stale=stale)
    stop = out_of_patience(state, recipe)
    return state, replace(record, evaluation=evaluation, is_best=is_best, stop=stop)
