"""Superposition: how many features fit into two dimensions, when few of them are there at a time."""

import math
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..training.optimizers import Adam
from .study import Figures, Rows, Study

FEATURES, WIDTH, BATCH, RATE = 5, 2, 512, 0.01
LENGTH, REGULAR = 0.5, 10.0  # a longer vector represents its feature; degrees by which a regular angle may be off


def _grid(quick: bool) -> list[dict[str, Any]]:
    sparsities = (0.0, 0.9) if quick else (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    return [{"sparsity": one, "importance": 0.9, "steps": 2000 if quick else 4000} for one in sparsities]


def loss_and_grads(params: Tree, x: Array, weights: Array) -> tuple[float, Tree]:
    """Return the mean of weights · (x' − x)² for features x (N, n), with x' = relu(x Wᵀ W + b), and its gradients."""
    h, squeezed = ops.linear(x, params["w"].T.copy())  # W (m, n) has a column for each feature
    z, spread = ops.linear(h, params["w"], params["b"])
    y, kept = ops.relu(z)
    dz = ops.relu_backward(2 * weights * (y - x) / x.size, kept)
    dh, dw, db = ops.linear_backward(dz, spread)
    _, dwt, _ = ops.linear_backward(dh, squeezed)
    return float(np.mean(weights * (y - x) ** 2)), {"w": dw + dwt.T, "b": db}  # W was read twice


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train W and b; return the vectors of the features, and how even the angles between them are."""
    rng, optimizer, steps = np.random.default_rng(seed), Adam(), point["steps"]
    params: Tree = {"w": rng.normal(size=(WIDTH, FEATURES)) * 0.5, "b": np.zeros(FEATURES)}
    state, losses = optimizer.init(params), []
    for step in range(steps):
        x = rng.random((BATCH, FEATURES)) * (rng.random((BATCH, FEATURES)) >= point["sparsity"])
        loss, grads = loss_and_grads(params, x, point["importance"] ** np.arange(FEATURES))
        params, state = optimizer.update(params, grads, state, lr=RATE * (1 + math.cos(math.pi * step / steps)) / 2)
        losses.append(loss)
    x, y = params["w"]
    angles = np.sort(np.degrees(np.arctan2(y, x))[np.hypot(x, y) > LENGTH])
    gaps = np.diff(angles, append=angles[:1] + 360)
    uneven = float(np.max(np.abs(gaps - 360 / max(len(angles), 1)), initial=0.0))
    found = {"loss": float(np.mean(losses[-100:])), "represented": len(angles), "uneven": uneven}
    return {**found, "pentagon": len(angles) == FEATURES and uneven <= REGULAR, "x": x.tolist(), "y": y.tolist()}


def figures(rows: Rows) -> Figures:
    """Draw the vectors of the features at each sparsity."""
    from ..plots import style

    own = rows.where(seed=rows[0]["seed"])
    figure, axes = style.row(len(own), 2.4, 2.6, columns=4)
    for ax, row in zip(axes, own, strict=True):
        for x, y, color in zip(row["x"], row["y"], style.colors().series, strict=False):
            ax.plot([0, x], [0, y], "-o", color=color, markersize=4)
        ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", title=f"sparsity {row['sparsity']:g}")
        style.bare(ax, f"{row['represented']} features")
    words = "the vectors of the features in the two dimensions, a color for each feature, one seed"
    return {"features": style.titled(figure, "Five features in two dimensions", words)}


STUDY = Study(
    name="superposition", question="How many features fit into two dimensions?",
    published="Of five dense features, two dimensions hold the two most important; sparse ones share the plane as a "
    "pentagon (Elhage et al. 2022, Toy Models of Superposition).",
    grid=_grid, measure=measure, figures=figures, seeds=5, minutes=1,
    answers={"represented": "highest", "pentagon": "highest"}, whole={"sparsity": 0.0},
    columns=("sparsity", "loss", "represented", "uneven"),
)  # fmt: skip
