"""Training under JAX: forward, backward, clipping and the optimizer as one compiled program.

The same ops, layers and models are traced once; the state stays on the devices, and its memory serves the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ... import ops
from ...core.arrays import Array, Tree, namespace
from ...core.execution import Execution
from ...core.sources import SourceGuard
from ...core.tree import flatten, named_leaves, rebuilt, tree_map
from ...data.examples import Dataset
from ...models import Batch, Model, build
from ...models.costs import rows_at_once
from ...training.evaluate import Evaluation, score
from ...training.gradients import all_finite, target_shares
from ...training.optimizer import Optimizer
from ...training.optimizers import Adam
from ...training.recipe import Recipe
from ...training.trainable import EVERYTHING
from ...training.trainer import TREES, Trainer, TrainingState
from ..cluster.collective import any_of
from ..mesh.rules import check_execution, parse_rules
from ..mesh.sharding import fetch, unstack_blocks
from .placement import DRAWING, Placement
from .programs import Program
from .sharded_checkpoint import list_sharded, load_sharded_state, save_sharded_state
from .stack import spreading

_OPTIMIZERS = SourceGuard("JaxTrainer.step", Optimizer, Adam)  # as long as it is current, what `is_bounded` says holds


class JaxTrainer(Trainer):
    """Takes the steps of a recipe under JAX.

        trainer = JaxTrainer(model, recipe, Execution(precision="bfloat16"))
        for state, record in training_steps(trainer, data, trainer.first()): …
        state = trainer.take(state)

    `put` and `take` lead from NumPy to the devices and back; in between, a state lies as the execution says, and each
    step reuses the memory of the one before. What a `parametrization` leaves as it is lies beside it, once. The model
    runs as it says itself unless an `execution` is given.
    """

    donates = True

    def __init__(
        self, model: Model, recipe: Recipe, execution: Execution | None = None, parametrization: Any = EVERYTHING
    ) -> None:
        execution = model.execution if execution is None else execution
        check_execution(model.config, execution, batch=recipe.batch, accumulate=recipe.accumulate)
        super().__init__(build(model.config, execution), recipe, parametrization)
        self.execution = execution
        self.scaling = LossScaling() if execution.precision == "float16" else None
        self.placement = Placement(execution.mesh, execution.half, parse_rules(execution.rules))
        self.parametrization = self.parametrization.over(self.put_params(parametrization.base))
        self.parts = ShardedStates(self)
        self._compiled_step = Program(self._take_step, donate_argnums=0)
        self._compiled_changes = Program(self._changes)
        self._compiled_score = Program(self._score)
        self._data: Dataset | None = None
        self._prepared: tuple[Dataset, int, Batch | Exception] | None = None

    def first(self, params: Tree | None = None) -> TrainingState:
        """Return the state before the first step; what is trained is drawn from the recipe's seed unless given.

        The numbers are those of `put(start(model, recipe))`, but a parameter is on its devices before the next is
        drawn, and what the optimizer remembers is made there: no host ever holds the whole.
        """
        if params is None:
            specs, seed = self.model.specs(), self.recipe.seed
            is_drawn = DRAWING.is_current()
            params = self.placement.drawn(specs, seed, stack=self.execution.scan) if is_drawn else self.model.init(seed)
        params = self.put_params(params)
        homes = self.placement.of_state(jax.eval_shape(self._beside, params))
        return TrainingState(0, params, **jax.jit(self._beside, out_shardings=homes)(params))

    def shapes(self, specs: Tree | None = None) -> TrainingState:
        """Return the shapes, types and shardings of the arrays of any state; `specs` are those of what is trained."""
        specs = self.model.specs() if specs is None else specs
        params = self.placement.shapes({"params": specs}, stack=self.execution.scan)["params"]
        rest = self.placement.shapes(jax.eval_shape(self._beside, params), stack=False)
        return TrainingState(0, params, **rest)

    def _beside(self, params: Tree) -> dict[str, Tree]:
        """Return what the first state holds besides parameters."""
        state = super().first(params)
        scaling = None if self.scaling is None else self.scaling.init()
        return {"optimizer": state.optimizer, "ema": state.ema, "scaling": scaling}

    def put(self, state: TrainingState) -> TrainingState:
        if self.scaling is not None and state.scaling is None:
            state = state._replace(scaling=self.scaling.init())
        return state._replace(**self.placement.put(state.trees, stack=self.execution.scan))

    def put_params(self, params: Tree) -> Tree:
        """Return parameters on the devices; those that are there already pass."""
        if not any(isinstance(leaf, np.ndarray) for _, leaf in named_leaves(params)):
            return params
        return self.placement.put({"params": params}, stack=self.execution.scan)["params"]

    def take(self, state: TrainingState, *, wanted: bool = True) -> TrainingState:
        """Return a state as NumPy arrays, block by block, or without arrays to a process that does not want them."""
        trees = self.fetch(state.trees, wanted=wanted)
        return state._replace(**(trees if wanted else dict.fromkeys(TREES)))

    def fetch(self, tree: Tree, *, wanted: bool = True) -> Tree:
        """Return arrays of a state as NumPy arrays, block by block; None to a process that does not want them."""
        tree = fetch(tree, wanted=wanted)
        return unstack_blocks(tree) if self.execution.scan else tree

    def step(
        self, state: TrainingState, batch: Batch, lr: float, *, keep: Any = None
    ) -> tuple[TrainingState, PendingFigures]:
        """Dispatch one step, which uses up the state; return the one after it and, still on their way, its figures."""
        # The rate is a float32, unless JAX is told otherwise.
        trees, figures = self._compiled_step(
            state.trees, self.parametrization.base, batch, self.key(state), np.float64(lr)
        )
        return state._replace(**trees), PendingFigures(figures, partial(self._prepare, state.step + 1))

    def batch(self, data: Dataset, step: int) -> Batch:
        """Return the batch of a step on the devices, in microbatches (accumulate, batch / accumulate, ...)."""
        recipe, prepared = self.recipe, self._prepared
        self._data, self._prepared = data, None
        if prepared is not None and prepared[0] is data and prepared[1] == step:
            if isinstance(prepared[2], Exception):
                raise prepared[2]
            return prepared[2]

        def rows(wanted: Array) -> Batch:
            return data.batch(step, recipe.batch, recipe.seed, rows=wanted)

        return self.placement.batch(rows, recipe.batch, recipe.accumulate)

    def _prepare(self, step: int) -> None:
        """Make the batch of the next step while the devices are still computing."""
        if self._data is not None and step < self.recipe.steps:
            try:
                batch: Batch | Exception = self.batch(self._data, step)
            except Exception as error:  # which ends the next step: the state of this one is still on its way
                batch = error
            self._prepared = self._data, step, batch

    def is_excused(self, state: TrainingState) -> bool:
        """Return whether a scale of gradients is still coming down: that is not the run's fault."""
        return self.scaling is not None and float(fetch(state.scaling)["scale"]) > 1

    def _take_step(
        self, trees: dict[str, Tree], base: Tree, batch: Batch, key: Array | None, lr: Array
    ) -> tuple[dict[str, Tree], Array]:
        xp = jax.numpy
        with self._traced():
            loss, grads = self._gradients(trees, base, batch, key)
        if self.scaling is not None:
            grads = self.scaling.undo(grads, trees["scaling"])
        grads, norm = self.clipped(grads)
        params, optimizer = self.updated(trees["params"], grads, trees["optimizer"], lr)
        ema = self.averaged(TrainingState(0, params, optimizer, trees["ema"])).ema
        moved = xp.isfinite(loss) & xp.isfinite(norm)
        if not (self.optimizer.is_bounded(self.recipe.lr) and _OPTIMIZERS.is_current()):
            moved = moved & all_finite(params)
        after = {"params": params, "optimizer": optimizer, "ema": ema}
        after = tree_map(lambda new, old: xp.where(moved, new, old), after, {name: trees[name] for name in after})
        after["scaling"] = None if self.scaling is None else self.scaling.update(trees["scaling"], moved)
        after = self.placement.pinned(after)
        return after, xp.stack([xp.asarray(figure, dtype=loss.dtype) for figure in (loss, norm, moved)])

    def _gradients(self, trees: dict[str, Tree], base: Tree, batch: Batch, key: Array | None) -> tuple[Array, Tree]:
        """Return the loss and the gradients of a batch: of its microbatches, one after the other in a loop."""
        trained, parts = trees["params"], self.recipe.accumulate
        scaled = {} if self.scaling is None else {"dloss": trees["scaling"]["scale"]}
        params = self.placement.outside_blocks(self.placement.working, self._effective(trained, base))
        params = self.parametrization.marked(self.model, params, trained)

        def gradients(part: Batch, key: Array | None) -> tuple[Array, Tree]:
            return self.trained_gradients(params, trained, part, key, **scaled)

        first = tree_map(lambda x: x[0], batch)
        if parts == 1:
            return gradients(first, key)
        keys = None if key is None else jax.numpy.stack([ops.fold_key(key, number) for number in range(parts)])
        # The targets counted in each part are its weight in the mean.
        targets: Array = batch.targets
        shares = target_shares((targets != ops.IGNORE).sum(axis=tuple(range(1, targets.ndim))))

        def add(sums: Tree, part: tuple[Batch, Array | None, Array]) -> tuple[Tree, None]:
            each = gradients(part[0], part[1])
            return tree_map(lambda total, x: total + x * part[2].astype(x.dtype), sums, each), None

        shapes = jax.eval_shape(gradients, first, key)
        zeros = jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), shapes)
        (loss, grads), _ = jax.lax.scan(add, zeros, (batch, keys, shares))
        return loss, grads

    @property
    def loss_and_grads(self) -> Callable[..., tuple[Array, Tree]]:
        """A function to the loss and the gradients, these sharded as the parameters are."""
        run = super().loss_and_grads

        def resting(*arguments: Any, **settings: Any) -> tuple[Array, Tree]:
            loss, grads = run(*arguments, **settings)
            return loss, self.placement.outside_blocks(self.placement.resting, grads)

        return resting

    @contextmanager
    def _traced(self) -> Iterator[None]:
        """Trace the model as it is executed: with all digits of float32, and on several devices."""
        precision = "highest" if self.execution.precision == "float32" else "default"
        with jax.default_matmul_precision(precision), spreading(self.placement if self.placement.mesh else None):
            yield

    def effective(self, trained: Tree) -> Tree:
        """Return the model's parameters on the devices; those that training leaves alone are the base's own arrays."""
        base = self.parametrization.base
        if base is None:
            return trained
        return rebuilt(base, flatten(base) | self._compiled_changes(trained, base))

    def _changes(self, trained: Tree, base: Tree) -> dict[str, Array]:
        before = flatten(base)
        return {name: x for name, x in flatten(self._effective(trained, base)).items() if x is not before[name]}

    def _effective(self, trained: Tree, base: Tree) -> Tree:
        """Return the model's parameters in a traced program, new ones split as the rules say."""
        if base is None:
            return trained
        with jax.default_matmul_precision("highest"):
            params = self.parametrization.over(base).effective(trained)
        pinned = self.placement.pinned({"params": params})["params"]
        return tree_map(lambda x, old, new: x if x is old else new, params, base, pinned)

    def evaluate(self, params: Tree, data: Dataset, **settings: Any) -> Evaluation:
        """Measure parameters on `data`, as `evaluate` does, on the devices; they are put there if need be."""
        rows = -(-rows_at_once(self.model.config, data.longest) // self.placement.replicas) * self.placement.replicas

        def fetched(params: Tree, batch: Batch) -> tuple[Array, Array]:
            loss, right = fetch(self._compiled_score(params, self.placement.padded(batch, rows, data.longest)))
            return loss, right[: len(batch.tokens)]

        return super().evaluate(self.put_params(params), data, **{"batch": rows, "scored": fetched, **settings})

    def _score(self, params: Tree, batch: Batch) -> tuple[Array, Array]:
        with self._traced():
            params = self.placement.outside_blocks(self.placement.working, params)
            return score(self.model, self.recipe.loss_settings().get("pair"), params, batch)


@dataclass(frozen=True)
class LossScaling:
    """Dynamic loss scaling (Micikevicius et al. 2018): enlarged gradients do not vanish in float16.

    The scale halves when a gradient leaves the range of float16, and the step is refused; it doubles after `patience`
    good steps.
    """

    first: float = 2.0**15
    largest: float = 2.0**24
    patience: int = 2000

    def init(self) -> dict[str, Array]:
        return {"scale": np.asarray(self.first, np.float32), "good": np.asarray(0, np.int32)}

    def undo(self, grads: Tree, state: Tree) -> Tree:
        return tree_map(lambda g: g / state["scale"].astype(g.dtype), grads)

    def update(self, state: Tree, moved: Array) -> dict[str, Array]:
        """Return the state after a step that was taken or refused."""
        xp = namespace(state["scale"])
        good = state["good"] + 1
        grows = moved & (good >= self.patience)
        factor = xp.where(moved, xp.where(grows, 2.0, 1.0), 0.5).astype(np.float32)
        scale = xp.clip(state["scale"] * factor, 1.0, self.largest)
        return {"scale": scale, "good": xp.where(moved & ~grows, good, 0).astype(np.int32)}


class PendingFigures:
    """Loss, gradient norm and whether a step moved: fetched when they are asked for, after useful work `meanwhile`."""

    def __init__(self, figures: Array, meanwhile: Callable[[], None]) -> None:
        self.figures, self.meanwhile = figures, meanwhile

    def __iter__(self) -> Iterator[float]:
        self.meanwhile()
        return iter(fetch(self.figures).tolist())


class ShardedStates:
    """States as all processes write them, each the part that its own devices hold."""

    save = staticmethod(save_sharded_state)

    def __init__(self, trainer: JaxTrainer) -> None:
        self.trainer, self.needed = trainer, trainer.placement.mesh is not None

    def not_finite(self, state: TrainingState) -> str | None:
        """Return the name of an array that is not finite; all processes must ask, each about its own devices' parts."""

        def own_parts(leaf: Array) -> list[Array]:
            shards = getattr(leaf, "addressable_shards", None)
            return [leaf] if shards is None else [np.asarray(shard.data) for shard in shards if shard.replica_id == 0]

        leaves = flatten(state.trees)
        wrong = next((name for name, leaf in leaves.items() if not all_finite(own_parts(leaf))), None)
        return wrong or ("a part of another worker" if any_of(wrong is not None) else None)

    def latest(self, folder: Path) -> int:
        return max(list_sharded(folder), default=-1)

    def load(self, folder: Path, specs: Tree) -> tuple[TrainingState, list[Path]]:
        """Return the latest state on the devices, and incomplete checkpoints after it; `specs`: of what is trained."""
        return load_sharded_state(folder, self.trainer.shapes(specs))
