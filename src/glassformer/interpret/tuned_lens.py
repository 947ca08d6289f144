"""The tuned lens: a lens with an affine map before the head at every point, which learns to say what the model will.

    h = x w + b      logits = head(norm h)      loss = mean of Σ p · (log p − log softmax(logits))

p is what the model says in the end. Early points keep their vectors in a basis of their own, which a plain lens takes
for that of the last point; the map translates (Belrose et al. 2023). It begins as the identity, as a plain lens.

    tuned = tuned_lens(run)
    tuned, losses = train_lens(tuned, runs, steps=200)
    tuned.read(run).ranks(7)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import ops
from ..arrays import Array, Tree
from ..errors import ConfigError, ShapeError
from ..ops.linear import LinearSaved
from ..training import Adam, Optimizer
from .batched import Progress
from .lens import Lens, chosen_points, read_point
from .run import Run
from .show import html_of
from .stream import Point, is_classifier, read_out, read_out_backward
from .tracing import TracingEngine, run_traced


@dataclass(frozen=True, eq=False)
class TunedLens:
    """A map w (D, D) and b (D,) for each point; the last point, which the head reads anyway, needs none."""

    points: list[Point]
    maps: list[Tree]

    def read(self, run: Run) -> Lens:
        """Return what the head reads at every point, each translated by its map, and at the last."""
        return Lens(run, self.points, np.stack([read_point(run, x) for x in self._translated(run)]))

    def _repr_html_(self) -> str:
        named = [(point.label, own["w"]) for point, own in zip(self.points, self.maps, strict=False)]
        return html_of(f"a tuned lens with a map for each of {len(named)} points", named, len(named))

    def _translated(self, run: Run) -> list[Array]:
        _check(self, run)
        every = [run[point.name] for point in self.points]
        return [_affine(own, x)[0] for own, x in zip(self.maps, every[:-1], strict=True)] + every[-1:]


def tuned_lens(run: Run) -> TunedLens:
    """Return a tuned lens for the model of a run, before it has learned anything."""
    every = chosen_points(run, None)
    x = run[every[0].name]
    width = x.shape[-1]
    return TunedLens(every, [{"w": np.eye(width, dtype=x.dtype), "b": np.zeros(width, x.dtype)} for _ in every[:-1]])


def lens_loss_and_grads(tuned: TunedLens, run: Run) -> tuple[Array, list[Tree]]:
    """Return how far every point is from what the model says in the end, (N,), and the gradients of its map.

    dlogits = (softmax(logits) − p) / count, and back through head, norm and map by their own backward passes.
    """
    _check(tuned, run)
    return run_traced(_loss_and_grads, tuned, run, engine=TracingEngine(forgets=True))


def train_lens(
    tuned: TunedLens,
    runs: Run | Sequence[Run],
    *,
    steps: int = 100,
    optimizer: Optimizer | None = None,
    lr: float | None = None,
    progress: Progress | None = None,
) -> tuple[TunedLens, Array]:
    """Take steps over the runs in turn; return the lens, and the loss of every point before each step, (steps, N)."""
    data = [runs] if isinstance(runs, Run) else list(runs)
    if not data or steps < 1:
        raise ConfigError(f"there are {len(data)} runs and {steps} steps", hint="give at least one of each")
    optimizer = Adam() if optimizer is None else optimizer
    lr = optimizer.default_lr if lr is None else lr
    params, losses = tuned.maps, []
    state = optimizer.init(params)
    for step in range(steps):
        loss, grads = lens_loss_and_grads(replace(tuned, maps=params), data[step % len(data)])
        losses.append(loss)
        params, state = optimizer.update(params, grads, state, lr=lr)
        if progress is not None:
            progress(step + 1, steps)
    return replace(tuned, maps=params), np.stack(losses)


def _loss_and_grads(tuned: TunedLens, run: Run) -> tuple[Array, list[Tree]]:
    counted = _counted(run)
    log_p = ops.log_softmax(run.logits)[0]
    p = np.exp(log_p)
    losses, grads = [], []
    for own, point in zip(tuned.maps, tuned.points[:-1], strict=True):
        h, mapped = _affine(own, run[point.name])
        logits, saved = read_out(run, h)
        log_q = ops.log_softmax(logits)[0]
        losses.append(np.sum(counted * np.sum(p * (log_p - log_q), axis=-1)))
        dlogits = counted[..., None] * (np.exp(log_q) - p)
        _, dw, db = ops.linear_backward(read_out_backward(run, saved, dlogits), mapped)
        grads.append({"w": dw, "b": db})
    return np.array(losses), grads


def _affine(own: Tree, x: Array) -> tuple[Array, Any]:
    """Return x w + b, and what its backward needs."""
    return ops.linear(x, own["w"], own["b"])[0], LinearSaved(x, own["w"], own["b"])


def _counted(run: Run) -> Array:
    """Return the share of each prediction in the mean: none for padding."""
    shape = run.logits.shape[:-1]
    mask = None if is_classifier(run) else run.batch.mask
    real = np.ones(shape) if mask is None else np.asarray(mask, dtype=np.float64)
    return (real / max(real.sum(), 1)).astype(run.logits.dtype)


def _check(tuned: TunedLens, run: Run) -> None:
    every = chosen_points(run, None)
    if tuned.points != every or tuned.maps[0]["b"].shape != run[every[0].name].shape[-1:]:
        raise ShapeError("this lens was made for another model", hint="make one with tuned_lens(run)")
