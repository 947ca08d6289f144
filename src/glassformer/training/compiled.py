"""Training under JAX: forward, backward, clipping and the optimizer as one compiled program.

The same ops, layers and models are traced once; the state stays on the devices, and its memory serves the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from .. import ops
from ..arrays import Array, Tree
from ..backend import spreading
from ..data.examples import Dataset
from ..models import Batch, Model, build
from ..parallel.sharding import fetch, fetch_for
from ..parallel.stacking import unstack_blocks
from ..tree import flatten, named_leaves, tree_map
from .ema import EMA
from .evaluate import Evaluation, evaluate, right_answers, rows_at_once
from .execution import Execution
from .gradients import all_finite, clip, global_norm
from .loop import StepRecord, TrainingState, drops, evaluated, final_params, is_due, new_record, out_of_patience, refuse
from .loss_scaling import LossScaling
from .parametrization import WHOLE, Parametrization
from .placement import Placement
from .recipe import Recipe

_TREES = ("params", "optimizer", "ema", "scaling")


class CompiledTraining:
    """Takes the steps of a recipe under JAX.

        training = CompiledTraining(model, recipe, Execution(precision="bfloat16"))
        state = training.first()
        for state, record in training.steps(data, state): …
        state = training.take(state)

    `put` and `take` lead from NumPy to the devices and back; in between, a state lies as the execution says, and each
    step reuses the memory of the one before. What a `parametrization` leaves as it is lies beside it, once.
    """

    def __init__(
        self, model: Model, recipe: Recipe, execution: Execution, parametrization: Parametrization = WHOLE
    ) -> None:
        execution.check(model.config, recipe)
        self.recipe = recipe
        self.execution = execution
        self.model = build(execution.applied(model.config))
        self.optimizer = recipe.build_optimizer()
        self.schedule = recipe.build_schedule()
        self.scaling = LossScaling() if execution.precision == "float16" else None
        self.placement = Placement(execution.mesh, self.model.config.compute)
        self.parametrization = parametrization.over(self.put_params(parametrization.base))

    # --- states ------------------------------------------------------------------------------------------------------

    def first(self, params: Tree | None = None) -> TrainingState:
        """Return the state before the first step; what is trained is drawn from the recipe's seed unless given.

        The numbers are those of `put(start(model, recipe))`, but a parameter is on its devices before the next is
        drawn, and what the optimizer remembers is made there: no host ever holds the whole.
        """
        import jax

        if params is None:
            params = self.placement.drawn(self.model.specs(), self.recipe.seed, stack=self.execution.scan)
        params = self.put_params(params)
        homes = self.placement.of_state(jax.eval_shape(self._beside, params))
        return TrainingState(0, params, **jax.jit(self._beside, out_shardings=homes)(params))

    def shapes(self, specs: Tree | None = None) -> TrainingState:
        """Return the shapes, types and places of the arrays of any state; `specs` are those of what is trained."""
        import jax

        specs = self.model.specs() if specs is None else specs
        params = self.placement.shapes({"params": specs}, stack=self.execution.scan)["params"]
        rest = self.placement.shapes(jax.eval_shape(self._beside, params), stack=False)
        return TrainingState(0, params, **rest)

    def _beside(self, params: Tree) -> dict[str, Tree]:
        """Return what a state has at first besides its parameters."""
        ema = None if self.recipe.ema is None else EMA(self.recipe.ema).init(params)
        scaling = None if self.scaling is None else self.scaling.init()
        return {"optimizer": self.optimizer.init(params), "ema": ema, "scaling": scaling}

    def put(self, state: TrainingState) -> TrainingState:
        """Return a state of NumPy arrays on the devices."""
        if self.scaling is not None and state.scaling is None:
            state = state._replace(scaling=self.scaling.init())
        trees = {name: getattr(state, name) for name in _TREES}
        return state._replace(**self.placement.put(trees, stack=self.execution.scan))

    def put_params(self, params: Tree) -> Tree:
        """Return parameters on the devices; those that are there already pass."""
        if not any(isinstance(leaf, np.ndarray) for _, leaf in named_leaves(params)):
            return params
        return self.placement.put({"params": params}, stack=self.execution.scan)["params"]

    def take(self, state: TrainingState, *, wanted: bool = True) -> TrainingState:
        """Return a state as NumPy arrays, block by block; all processes must call this together.

        One that does not want it gets a state without arrays, and never holds them.
        """
        trees = self.fetch({name: getattr(state, name) for name in _TREES}, wanted=wanted)
        return state._replace(**(trees if wanted else dict.fromkeys(_TREES)))

    def fetch(self, tree: Tree, *, wanted: bool = True) -> Tree:
        """Return arrays of a state as NumPy arrays, block by block; None to a process that does not want them."""
        tree = fetch_for(wanted, tree)
        return unstack_blocks(tree) if self.execution.scan else tree

    # --- steps -------------------------------------------------------------------------------------------------------

    def steps(
        self, data: Dataset, state: TrainingState, *, evaluate: Callable[[Tree], Evaluation] | None = None
    ) -> Iterator[tuple[TrainingState, StepRecord]]:
        """Train from `state`, whose memory is used up, to the recipe's last step, as `training_steps` does."""
        recipe = self.recipe
        batch = self.batch(data, state.step)
        while state.step < recipe.steps and not out_of_patience(state, recipe):
            began = time.perf_counter()
            lr = self.schedule(state.step)
            after, figures, tokens = *self.step(state, batch, lr), _tokens(batch)
            if state.step + 1 < recipe.steps:  # the devices are still computing
                batch = self.batch(data, state.step + 1)
            loss, norm, moved = (float(figure) for figure in fetch(figures))
            record = new_record(began, state.step + 1, loss, lr, norm, tokens, refused=not moved)
            state = after._replace(step=state.step + 1, refused=0) if moved else self._refused(after, loss, norm)
            if evaluate is not None and is_due(state.step, recipe):
                params = self.effective(final_params(state, recipe))
                state, record = evaluated(state, record, recipe, evaluate(params))
            yield state, record

    def step(self, state: TrainingState, batch: Batch, lr: float) -> tuple[TrainingState, Array]:
        """Dispatch one step; return the state after it and, still on its way, loss, gradient norm and whether it moved.

        The counters of the state are left to the caller.
        """
        seed = self.recipe.seed
        key = ops.fold_key(ops.new_key(seed), state.step) if drops(self.model) else None
        trees = {name: getattr(state, name) for name in _TREES}
        base = self.parametrization.base
        # The rate is a float32, unless JAX is told otherwise.
        trees, figures = self._compiled_step(trees, base, batch, key, np.float64(lr))
        return state._replace(**trees), figures

    def batch(self, data: Dataset, step: int) -> Batch:
        """Return the batch of a step on the devices, in microbatches (accumulate, batch / accumulate, ...)."""
        recipe = self.recipe

        def rows(wanted: Array) -> Batch:
            return data.batch(step, recipe.batch, recipe.seed, rows=wanted)

        return self.placement.batch(rows, recipe.batch, recipe.accumulate)

    @cached_property
    def _compiled_step(self) -> Callable[..., tuple[dict[str, Tree], Array]]:
        import jax

        return jax.jit(self._take_step, donate_argnums=0)

    def _take_step(
        self, trees: dict[str, Tree], base: Tree, batch: Batch, key: Array | None, lr: Array
    ) -> tuple[dict[str, Tree], Array]:
        import jax

        xp = jax.numpy
        precision = "highest" if self.execution.precision == "float32" else "default"
        with jax.default_matmul_precision(precision), spreading(self.placement.spreading):
            loss, grads = self._gradients(trees, base, batch, key)
        if self.scaling is not None:
            grads = self.scaling.undo(grads, trees["scaling"])
        grads, norm = clip(grads, self.recipe.clip) if self.recipe.clip else (grads, global_norm(grads))
        params, optimizer = self.optimizer.update(trees["params"], grads, trees["optimizer"], lr=lr)
        ema = None if trees["ema"] is None else EMA(self.recipe.ema or 0.0).update(trees["ema"], params)
        moved = xp.isfinite(loss) & xp.isfinite(norm)
        if not self.optimizer.is_bounded(self.recipe.lr):
            moved = moved & all_finite(params)
        after = {"params": params, "optimizer": optimizer, "ema": ema}
        after = tree_map(lambda new, old: xp.where(moved, new, old), after, {name: trees[name] for name in after})
        after["scaling"] = None if self.scaling is None else self.scaling.update(trees["scaling"], moved)
        after = self.placement.pinned(after)
        return after, xp.stack([xp.asarray(figure, dtype=loss.dtype) for figure in (loss, norm, moved)])

    def _gradients(self, trees: dict[str, Tree], base: Tree, batch: Batch, key: Array | None) -> tuple[Array, Tree]:
        """Return the loss and the gradients of all microbatches together, one after the other in a loop."""
        import jax

        scale = 1.0 if self.scaling is None else trees["scaling"]["scale"]
        settings: dict[str, Any] = {"smoothing": self.recipe.label_smoothing, "dloss": scale}
        parts = self.recipe.accumulate
        params = self._working(self._effective(trees["params"], base))

        def gradients(part: Batch, key: Array | None) -> tuple[Array, Tree]:
            loss, grads = self.model.loss_and_grads(params, part, key=key, **settings)
            grads = self.placement.outside_blocks(self.placement.resting, grads)
            return loss, self.parametrization.pull_back(trees["params"], grads)

        first = tree_map(lambda x: x[0], batch)
        if parts == 1:
            return gradients(first, key)
        keys = None if key is None else jax.numpy.stack([ops.fold_key(key, number) for number in range(parts)])
        # The targets counted in each part are its weight in the mean.
        targets: Array = batch.targets
        counts = (targets != ops.IGNORE).sum(axis=tuple(range(1, targets.ndim)))
        shares = counts / jax.numpy.maximum(counts.sum(), 1)

        def add(sums: Tree, part: tuple[Batch, Array | None, Array]) -> tuple[Tree, None]:
            found = gradients(part[0], part[1])
            return tree_map(lambda total, x: total + x * part[2].astype(x.dtype), sums, found), None

        shapes = jax.eval_shape(gradients, first, key)
        zeros = jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), shapes)
        (loss, grads), _ = jax.lax.scan(add, zeros, (batch, keys, shares))
        return loss, grads

    def _working(self, params: Tree) -> Tree:
        return self.placement.outside_blocks(self.placement.working, params)

    def _refused(self, state: TrainingState, loss: float, norm: float) -> TrainingState:
        """Count a refused step; while a scale of gradients is still coming down, that is not the run's fault."""
        if self.scaling is not None and self.scaling.can_shrink(fetch(state.scaling)):
            return state._replace(step=state.step + 1)
        return refuse(state, loss, norm)

    # --- parameters --------------------------------------------------------------------------------------------------

    def effective(self, trained: Tree) -> Tree:
        """Return the model's parameters on the devices; those that training leaves alone are the base's own arrays."""
        base = self.parametrization.base
        if base is None:
            return trained
        leaves = iter((flatten(base) | self._compiled_changes(trained, base)).values())
        return tree_map(lambda _: next(leaves), base)

    @cached_property
    def _compiled_changes(self) -> Callable[[Tree, Tree], dict[str, Array]]:
        import jax

        def changes(trained: Tree, base: Tree) -> dict[str, Array]:
            before = flatten(base)
            return {name: x for name, x in flatten(self._effective(trained, base)).items() if x is not before[name]}

        return jax.jit(changes)

    def _effective(self, trained: Tree, base: Tree) -> Tree:
        """Return the model's parameters in a traced program, new ones split as the rules say."""
        import jax

        if base is None:
            return trained
        with jax.default_matmul_precision("highest"):
            params = self.parametrization.over(base).effective(trained)
        pinned = self.placement.pinned({"params": params})["params"]
        return tree_map(lambda own, old, new: own if own is old else new, params, base, pinned)

    # --- evaluation --------------------------------------------------------------------------------------------------

    def evaluate(self, params: Tree, data: Dataset, **settings: Any) -> Evaluation:
        """Measure parameters on the devices on all of `data`, as `evaluate` does."""
        rows = -(-rows_at_once(self.model, data) // self.placement.replicas) * self.placement.replicas

        def score(params: Tree, batch: Batch) -> tuple[Array, Array]:
            loss, right = fetch(self._compiled_score(params, self.placement.whole(batch, rows, data.longest)))
            return loss, right[: len(batch.tokens)]

        return evaluate(self.model, params, data, batch=rows, score=score, **settings)

    @cached_property
    def _compiled_score(self) -> Callable[..., tuple[Array, Array]]:
        import jax

        def score(params: Tree, batch: Batch) -> tuple[Array, Array]:
            precision = "highest" if self.execution.precision == "float32" else "default"
            with jax.default_matmul_precision(precision), spreading(self.placement.spreading):
                logits, _ = self.model.predict(self._working(params), batch)
                loss, _ = ops.cross_entropy(logits, batch.targets)
                return loss, right_answers(logits, batch.targets)

        return jax.jit(score)


def _tokens(batch: Batch) -> int:
    """Return how many tokens a batch has, padding included."""
    return int(np.prod(batch.tokens.shape)) + (0 if batch.source is None else int(np.prod(batch.source.shape)))
