"""The trainer of the engine cpu: batches in shards over the cores, and steps in the memory of the state before.

The numbers are those of `Trainer` under the same kernels, bit for bit, where a batch is computed in one part.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...arrays import Array, Tree, cast, widen
from ...dispatch import current, replaces
from ...models import Batch
from ...sources import check_once
from ...training.interruption import uninterrupted
from ...training.optimizer import Memory, Optimizer, check_gradients, memories_of
from ...training.optimizers import Adam, AdamW
from ...training.state import TrainingState
from ...training.trainer import Figures, Keep, Taken, Trainer
from ...tree import flatten, tree_map
from .all_arrays import adam_on_all
from .shards import loss_and_grads

Arrays: TypeAlias = dict[str, Array]
Memories: TypeAlias = dict[str, Memory]
Scalars: TypeAlias = tuple[Any, ...]
Move: TypeAlias = Callable[[Arrays, float], None]
"""A step of an optimizer in place, given all gradients and the learning rate."""


class InPlaceTrainer(Trainer):
    """Takes steps in the memory of a state wherever it may: fresh arrays would have to be brought in at every step."""

    _moves: tuple[TrainingState, Move] | None = None  # the state whose arrays move, and how

    def first(self, params: Tree | None = None) -> TrainingState:
        """Return the state before the first step; parameters that are given stay as they are."""
        return super().first(params if params is None else tree_map(np.array, params))

    def put(self, state: TrainingState) -> TrainingState:
        """Return the state in memory of its own, which steps may overwrite."""
        return tree_map(lambda x: np.array(x) if isinstance(x, np.ndarray) else x, state)

    @check_once
    def step(self, state: TrainingState, batch: Batch, lr: float, *, keep: Keep | None = None) -> Taken:
        """Return the state after one step, and its figures; see `Trainer.step`."""
        # What overflows here needs no warning of its own: the step is refused.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            loss, grads, norm = self.gradients(state, batch)
            finite = math.isfinite(loss) and math.isfinite(norm)
            # What is written cannot be taken back: only steps that are sure to be finite are.
            if keep is None or not finite or not self.optimizer.is_bounded(lr) or not _is_usual(self.optimizer):
                return self.moved(state, grads, lr, loss, norm)
            move, figures = self._move(state), Figures(loss, norm, True)
            with uninterrupted():
                move(grads, lr)
                state = self.averaged(state)
                keep(state, figures)
            return state, figures

    def loss_and_grads(self, params: Tree, batch: Batch, key: Array | None) -> tuple[Array, Tree]:
        """Return the loss and the gradients of a batch, computed in shards."""
        settings: dict[str, Any] = {"key": key, "smoothing": self.recipe.label_smoothing}
        return loss_and_grads(self.model, params, batch, shards=self.recipe.shards or 1, **settings)

    def _move(self, state: TrainingState) -> Move:
        """Return how the arrays of a state move."""
        if self._moves is None or self._moves[0].params is not state.params:
            self._moves = state, in_place(self.optimizer, state.params, state.optimizer)
        return self._moves[1]


@replaces(Optimizer.update, Adam, AdamW)
def in_place(optimizer: Optimizer, params: Tree, state: Tree) -> Move:
    """Return a function that takes the same steps as `optimizer.update`, in the memory of `params` and `state`."""
    leaves, memories = flatten(params), memories_of(state)
    optimizer.check_state(memories, leaves)
    collective = _adam(optimizer, leaves, memories)

    def step(grads: Arrays, lr: float) -> None:
        number = state["step"].item() + 1
        if collective is None or not collective(grads, number, lr):
            check_gradients(grads, leaves)
            _move_each(optimizer, leaves, grads, memories, optimizer.scalars(state["step"] + 1, lr))
        state["step"][...] = number

    return step


def _move_each(optimizer: Optimizer, leaves: Arrays, grads: Arrays, memories: Memories, scalars: Scalars) -> None:
    """Move one array after the other as written, and copy what comes of it to where it was."""
    for name, leaf in leaves.items():
        p, memory = widen(leaf), memories.get(name, {})
        typed = [np.asarray(number, dtype=p.dtype) for number in scalars]
        moved, remembered = optimizer.move(name, p, cast(grads[name], p.dtype), memory, *typed)
        leaf[...] = moved
        for slot, array in memory.items():
            array[...] = remembered[slot]


def _adam(optimizer: Optimizer, leaves: Arrays, memories: Memories) -> Callable[[Arrays, int, float], bool] | None:
    """Return what takes a step of Adam on all arrays in one call, given its number; it answers False if it cannot."""
    if type(optimizer) not in (Adam, AdamW) or "adam_update" not in current().table:
        return None
    assert isinstance(optimizer, Adam | AdamW)
    settings = {name: getattr(optimizer, name) for name in ("beta1", "beta2", "eps")}
    means, squares = ([memories[name][slot] for name in leaves] for slot in ("mean", "square"))
    decays = [optimizer.is_decayed(name, p) for name, p in leaves.items()]
    run = adam_on_all(list(leaves.values()), means, squares, decays, **settings)
    if run is None:
        return None

    def move(grads: Arrays, number: int, lr: float) -> bool:
        if grads.keys() != leaves.keys() or "adam_update" not in current().table:
            return False
        scalars = optimizer.scalars(np.float64(number), lr)  # as those of an integer, which NumPy multiplies slowly
        lr, rate, root = [float(np.float32(scalar)) for scalar in scalars]
        return run([grads[name] for name in leaves], rate=rate, root=root, **optimizer.decay(np.float32(lr)))

    return move


def _is_usual(optimizer: Optimizer) -> bool:
    """Tell whether an optimizer updates parameters as its base class does, and that is as it was written."""
    return type(optimizer).update is Optimizer.update and in_place.kernel.is_current()  # type: ignore[attr-defined]
