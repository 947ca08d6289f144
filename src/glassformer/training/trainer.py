"""The state of a training run, and the trainer, which takes its steps as they are written; engines replace it.

    trainer = Trainer(model, recipe)
    state = trainer.first()
    state, figures = trainer.step(state, trainer.batch(data, 0), lr=1e-3)

Batches and dropout follow from the seed and the step number, so a run that continues from a stored state computes the
very same bits as one that was never interrupted. `loop` decides when steps and evaluations happen.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.errors import CheckpointError, TrainingError
from ..core.tree import flatten, rebuilt
from ..data.examples import Dataset, count_targets
from ..models import Batch, Model
from .evaluate import Evaluation, evaluate, score
from .gradients import accumulate, all_finite, clip, global_norm
from .optimizers import EMA
from .recipe import Recipe
from .trainable import EVERYTHING, Parametrization


class TrainingState(NamedTuple):
    """Everything the rest of a run depends on, after `step` steps."""

    step: int
    params: Tree  # what is trained: all parameters, or the adapters beside frozen ones
    optimizer: Tree
    ema: Tree | None = None
    best: float | None = None  # the lowest cost so far: see `loop.cost`
    stale: int = 0  # evaluations since
    refused: int = 0  # refused steps in a row
    scaling: Tree | None = None  # by how much float16 gradients are enlarged

    @property
    def trees(self) -> dict[str, Tree]:
        """The trees of arrays, by name."""
        return {name: getattr(self, name) for name in TREES}


COUNTERS = ("step", "best", "stale", "refused")
"""Fields of a state that are numbers."""

TREES = ("params", "optimizer", "ema", "scaling")


def start(model: Model, recipe: Recipe, params: Tree | None = None) -> TrainingState:
    """Return the state before the first step; what is trained is drawn from the recipe's seed unless given."""
    params = model.init(recipe.seed) if params is None else params
    ema = None if recipe.ema is None else EMA(recipe.ema).init(params)
    return TrainingState(
        0, params, recipe.build_optimizer().init(Parametrization(freeze=recipe.freeze).moving(params)), ema
    )


def final_params(state: TrainingState, recipe: Recipe) -> Tree:
    """Return what counts of what was trained: the moving average where there is one."""
    return state.params if state.ema is None else EMA(recipe.ema or 0.0).read(state.ema, state.params)


def not_finite(state: TrainingState) -> str | None:
    """Return the name of an array that holds an infinity, or what is no number; None where all of a state is finite."""
    return next((name for name, array in flatten(state.trees).items() if not all_finite({name: array})), None)


def refuse_to_save(wrong: str | None, step: int) -> None:
    """Refuse to save what no step can have made, by the name of an array: steps that are not finite move nothing."""
    if wrong is not None:
        raise TrainingError(
            f"{wrong} is not finite after step {step:,}, and no step made it so; it was not saved",
            hint="the memory of this machine may be at fault; resume the run from its last checkpoint",
        )


def refuse_to_go_on(wrong: str | None, step: int, path: Path) -> None:
    """Refuse to go on from a checkpoint in which an array of this name is not finite."""
    if wrong is not None:
        fact = f"{path} cannot be gone on from: {wrong} is not finite after step {step:,}"
        raise CheckpointError(fact, hint="restore it from a copy, or train anew")


class Figures(NamedTuple):
    """The figures of one step: the loss, the norm of its gradients, and whether it moved the parameters."""

    loss: float
    norm: float
    moved: bool


Taken: TypeAlias = tuple[TrainingState, Iterable[float]]
"""The state after a step, its counters as before, and the three `Figures`, which may still be on their way."""
Keep: TypeAlias = Callable[[TrainingState, Iterable[float]], None]


class Trainer:
    """Takes the steps of a recipe, here as pure steps in NumPy: no state is ever changed.

    donates   whether every step uses up the memory of the state before, kept or not
    parts     how all processes of a run write a state together, each the part that its own devices hold: see
              `engines.jax.trainer.ShardedStates` (None: never)
    """

    donates = False
    parts: Any = None

    def __init__(self, model: Model, recipe: Recipe, parametrization: Parametrization = EVERYTHING) -> None:
        self.model, self.recipe, self.optimizer = model, recipe, recipe.build_optimizer()
        self.parametrization = replace(parametrization, freeze=recipe.freeze)

    def first(self, params: Tree | None = None) -> TrainingState:
        """Return the state before the first step; what is trained is drawn from the recipe's seed unless given."""
        return start(self.model, self.recipe, params)

    def put(self, state: TrainingState) -> TrainingState:
        """Return a state of NumPy arrays where steps are taken, in memory of its own if they write to it."""
        return state

    def take(self, state: TrainingState, *, wanted: bool = True) -> TrainingState:
        """Return a state as NumPy arrays, if wanted; all processes must call this together."""
        return state

    def is_donated(self, state: TrainingState) -> bool:
        """Return whether a step has taken the memory of a state, as steps on a device do."""
        return any(getattr(leaf, "is_deleted", bool)() for leaf in flatten(state.params).values())

    def batch(self, data: Dataset, step: int) -> Batch:
        """Return the batch of a step."""
        return data.batch(step, self.recipe.batch, self.recipe.seed)

    def step(self, state: TrainingState, batch: Batch, lr: float, *, keep: Keep | None = None) -> Taken:
        """Return the state after one step, and its figures; a step that is not finite moves nothing.

        With `keep`, the step may be taken in the memory of `state`, which is then lost: `keep` is told what came of it
        before Ctrl-C can come in between.
        """
        # What overflows here needs no warning of its own: the step is refused.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            loss, grads, norm = self.gradients(state, batch)
            return self.moved(state, grads, lr, loss, norm)

    def gradients(self, state: TrainingState, batch: Batch) -> tuple[float, dict[str, Array], float]:
        """Return the loss of a batch, its gradients by dotted name, clipped, and their norm before that."""
        recipe = self.recipe
        key, trained = self.key(state), state.params
        params = self.parametrization.effective(trained)
        params = self.parametrization.marked(self.model, params, trained)
        if recipe.accumulate == 1:
            loss, grads = self.loss_and_grads(params, batch, key=key)
            grads = self.parametrization.pull_back(trained, grads)
        else:
            loss, grads, _ = accumulate(
                (*self.trained_gradients(params, trained, rows, None if key is None else ops.fold_key(key, i)), n)
                for i, (rows, n) in enumerate(_microbatches(batch, recipe.accumulate))
            )
        named, norm = self.clipped(flatten(grads))
        return float(loss), named, float(norm)

    def key(self, state: TrainingState) -> Array | None:
        """Return the key of a step's dropout; None for a model without dropout."""
        return ops.fold_key(ops.new_key(self.recipe.seed), state.step) if drops(self.model) else None

    def trained_gradients(
        self, params: Tree, trained: Tree, batch: Batch, key: Array | None, **settings: Any
    ) -> tuple[Array, Tree]:
        """Return the loss of a batch, or of a part of it, and the gradients of what is trained and not frozen."""
        loss, grads = self.loss_and_grads(params, batch, key=key, **settings)
        return loss, self.parametrization.pull_back(trained, grads)

    @property
    def loss_and_grads(self) -> Callable[..., tuple[Array, Tree]]:
        """The loss and the gradients of the parameters, as a function of these, a batch and a key."""
        return partial(self.model.loss_and_grads, **self.recipe.loss_settings())

    def clipped(self, grads: Tree) -> tuple[Tree, Any]:
        """Return gradients clipped as the recipe says, and their norm before that."""
        return clip(grads, self.recipe.clip) if self.recipe.clip else (grads, global_norm(grads))

    def moved(self, state: TrainingState, grads: Tree, lr: float, loss: float, norm: float) -> Taken:
        """Return the state after the optimizer's step, if all of it is finite."""
        # A finite norm says that all gradients are finite, but a huge step can still leave the range of the weights.
        if math.isfinite(loss) and math.isfinite(norm):
            params, moments = self.updated(state.params, grads, state.optimizer, lr)
            if all_finite(params):
                return self.averaged(state._replace(params=params, optimizer=moments)), Figures(loss, norm, True)
        return state, Figures(loss, norm, False)

    def updated(self, params: Tree, grads: Tree, moments: Tree, lr: Any) -> tuple[Tree, Tree]:
        """Return all parameters and what the optimizer remembers after its step over those that are not frozen."""
        moved, moments = self.optimizer.update(self.parametrization.moving(params), grads, moments, lr=lr)
        return (rebuilt(params, flatten(params) | flatten(moved)) if self.recipe.freeze else moved), moments

    def averaged(self, state: TrainingState) -> TrainingState:
        """Return a state whose parameters have moved with its moving average moved too."""
        if state.ema is None:
            return state
        return state._replace(ema=EMA(self.recipe.ema or 0.0).update(state.ema, state.params))

    def is_excused(self, state: TrainingState) -> bool:
        """Return whether the refused step before this state says nothing about the run."""
        return False

    def effective(self, trained: Tree) -> Tree:
        """Return the parameters of the model for those that are trained."""
        return self.parametrization.effective(trained)

    def evaluate(self, params: Tree, data: Dataset, **settings: Any) -> Evaluation:
        """Measure parameters on `data`: see `evaluate`."""
        scored = partial(score, self.model, self.recipe.loss_settings().get("pair"))
        return evaluate(self.model, params, data, **{"scored": scored, "most": self.recipe.eval_tokens, **settings})


def drops(model: Model) -> bool:
    """Return whether a model uses dropout anywhere, and so needs a key."""
    config = model.config
    return bool(config.dropout or config.weight_dropout or config.input_dropout)


def _microbatches(batch: Batch, parts: int) -> Iterator[tuple[Batch, int]]:
    """Cut a batch into parts of nearly the same number of examples, each with its number of counted targets."""
    borders = np.linspace(0, len(batch.tokens), parts + 1).astype(int)
    for start_, stop in itertools.pairwise(borders):
        part = Batch(*(None if array is None else array[start_:stop] for array in batch))
        if start_ < stop:
            yield part, count_targets(part)
