"""The trainer of the engine cpu: batches in shards over the cores, and steps in the memory of the state before.

The numbers are those of `Trainer` under the same kernels, bit for bit, where a batch is computed in one part.

Every core computes the loss and the gradients of its own sequences, with matrix products of one thread; the results are
added up in a fixed order. This keeps all cores busy throughout the step, where threads inside of a product leave
them idle between products. The number of shards decides the order of the sums, and so the last bits of the result.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from ... import ops
from ...config import TransformerConfig
from ...core.arrays import Array, Tree, cast, widen
from ...core.dispatch import current, replaces
from ...core.sources import check_once
from ...core.threads import cores
from ...core.tree import flatten, tree_map
from ...data.examples import count_targets
from ...models import Batch, Model
from ...models.costs import flops_per_token
from ...training.gradients import target_shares
from ...training.interruption import uninterrupted
from ...training.optimizer import Optimizer, check_gradients, memories_of
from ...training.optimizers import Adam, AdamW
from ...training.trainer import Figures, Keep, Taken, Trainer, TrainingState
from .cores import each
from .update import adam_on_all, add_to_all, add_weighted

Arrays: TypeAlias = dict[str, Array]
Move: TypeAlias = Callable[[Arrays, float], None]
"""A step of an optimizer in place, given all gradients and the learning rate."""

WORTHWHILE = 2e8  # FLOPs of a shard: fewer cost more to hand out than they save; measured by benchmarks/shards.py


class InPlaceTrainer(Trainer):
    """Takes steps in the memory of a state wherever it may: fresh arrays would have to be brought in at every step."""

    _moves: tuple[TrainingState, Move] | None = None  # the state whose arrays move, and how

    def first(self, params: Tree | None = None) -> TrainingState:
        """Return the state before the first step; parameters that are given stay as they are.

        Rows of matrices lie one behind the other, as kernels want them, unlike in the files of most published models.
        """
        return super().first(params if params is None else tree_map(partial(np.array, order="C"), params))

    def put(self, state: TrainingState) -> TrainingState:
        """Return the state in memory of its own, which steps may overwrite."""
        return tree_map(lambda x: np.array(x) if isinstance(x, np.ndarray) else x, state)

    @check_once
    def step(self, state: TrainingState, batch: Batch, lr: float, *, keep: Keep | None = None) -> Taken:
        # What overflows here needs no warning of its own: the step is refused.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            loss, grads, norm = self.gradients(state, batch)
            finite = math.isfinite(loss) and math.isfinite(norm)
            # What is written cannot be taken back: only steps that are sure to be finite are.
            usual = type(self.optimizer).update is Optimizer.update and in_place.kernel.is_current()  # type: ignore[attr-defined]
            if keep is None or not finite or not self.optimizer.is_bounded(lr) or not usual:
                return self.moved(state, grads, lr, loss, norm)
            if self._moves is None or self._moves[0].params is not state.params:
                moving = self.parametrization.moving(state.params)
                self._moves = state, in_place(self.optimizer, moving, state.optimizer)
            figures = Figures(loss, norm, True)
            with uninterrupted():
                self._moves[1](grads, lr)
                state = self.averaged(state)
                keep(state, figures)
            return state, figures

    @property
    def loss_and_grads(self) -> Callable[..., tuple[Array, Tree]]:
        """The function that computes the loss and the gradients of a batch, in shards where there are several."""
        if self.recipe.shards is None or self.recipe.shards == 1:
            return super().loss_and_grads
        return partial(loss_and_grads, self.model, shards=self.recipe.shards, **self.recipe.loss_settings())


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
            scalars = optimizer.scalars(state["step"] + 1, lr)
            for name, leaf in leaves.items():  # as written, and copied to where it was
                p, memory = widen(leaf), memories.get(name, {})
                typed = [np.asarray(scalar, dtype=p.dtype) for scalar in scalars]
                moved, remembered = optimizer.move(name, p, cast(grads[name], p.dtype), memory, *typed)
                leaf[...] = moved
                for slot, array in memory.items():
                    array[...] = remembered[slot]
        state["step"][...] = number

    return step


def _adam(optimizer: Optimizer, leaves: Arrays, memories: Tree) -> Callable[[Arrays, int, float], bool] | None:
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


def suitable_shards(config: TransformerConfig, batch: int) -> int:
    """Return in how many shards a step on `batch` full sequences is computed fastest on this machine."""
    flops = 3 * flops_per_token(config, config.context) * config.context * batch
    return max(1, min(cores(), batch, int(flops // WORTHWHILE)))


def loss_and_grads(
    model: Model, params: Tree, batch: Batch, *, shards: int, key: Array | None = None, **settings: Any
) -> tuple[Array, Tree]:
    """Return what `model.loss_and_grads` does, computed in `shards` parts at the same time.

    With dropout, every shard draws its own mask.
    """
    shards = min(shards, len(batch.tokens)) if batch.tokens.ndim > 1 else 1
    if shards < 2:
        return model.loss_and_grads(params, batch, key=key, **settings)
    cuts = [len(batch.tokens) * number // shards for number in range(shards + 1)]
    parts = [Batch(*(None if x is None else x[start:stop] for x in batch)) for start, stop in pairwise(cuts)]

    def task(number: int) -> tuple[Any, Tree]:
        shard_key = None if key is None else ops.fold_key(key, number)
        return model.loss_and_grads(params, parts[number], key=shard_key, **settings)

    results = each([partial(task, number) for number in range(shards)])
    shares: list[float] = target_shares(np.array([count_targets(part) for part in parts])).tolist()
    loss = sum(share * loss for share, (loss, _) in zip(shares, results, strict=True))
    _add_up([grads for _, grads in results], shares)
    return np.asarray(loss, results[0][0].dtype), results[0][1]


def _add_up(grads: list[Tree], shares: list[float]) -> None:
    """Turn the gradients of the first shard into the weighted sum of all, in place."""
    totals, *rest = (list(flatten(tree).values()) for tree in grads)
    keep = shares[0]
    for others, share in zip(rest, shares[1:], strict=True):
        if not add_to_all(totals, others, keep, share):
            for total, other in zip(totals, others, strict=True):
                add_weighted(total, other, keep, share)
        keep = 1.0
