"""Everything that the rest of a training run depends on.

Batches and dropout follow from the seed and the step number, so a run that continues from a stored state computes the
very same bits as one that was never interrupted.
"""

from pathlib import Path
from typing import NamedTuple

from ..core.arrays import Tree
from ..core.errors import CheckpointError, TrainingError
from ..core.tree import flatten
from ..models import Model
from .gradients import all_finite
from .lora import Parametrization
from .optimizers import EMA
from .recipe import Recipe


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
