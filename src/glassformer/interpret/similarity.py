"""How alike the vectors of two layers are, whatever basis they are in: linear CKA.

    CKA(x, y) = ‖xᵀ y‖² / (‖xᵀ x‖ · ‖yᵀ y‖)        x (N, D) and y (N, E), centered; ‖·‖ of Frobenius

1 where one is a rotation and scaling of the other, 0 where nothing linear connects them (Kornblith et al. 2019). It
compares how N tokens lie to each other, so N should be well above D: of few tokens even unrelated layers look alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, ShapeError
from .run import Run
from .stream import points, token_rows


def linear_cka(x: Array, y: Array) -> float:
    """Return how alike vectors x (N, D) and y (N, E) of the same N tokens are, from 0 to 1."""
    x, y = (np.asarray(value, dtype=np.float64) for value in (x, y))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 2:
        raise ShapeError(f"the vectors are {x.shape} and {y.shape}", hint="pass (N, D) and (N, E), of the same tokens")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    if max(x.shape[1], y.shape[1]) > len(x):
        # ‖xᵀ y‖² = Σ (x xᵀ) · (y yᵀ), smaller where there are fewer tokens than features
        across, own, other = (float(np.sum((a @ a.T) * (b @ b.T))) for a, b in ((x, y), (x, x), (y, y)))
    else:
        across, own, other = (float(np.sum((a.T @ b) ** 2)) for a, b in ((x, y), (x, x), (y, y)))
    if own == 0 or other == 0:
        raise ConfigError("all vectors of a layer are equal", hint="similarity needs tokens that differ")
    return across / (own * other) ** 0.5


def layer_similarity(run: Run, other: Run | None = None, *, at: Sequence[str] | None = None) -> Array:
    """Return the CKA of all pairs of values (N, N): of points of the stream unless named, padding left out.

    `other` is a run of another model on the same tokens; then rows are of the one and columns of the other.
    """
    other = run if other is None else other
    if not np.array_equal(run.batch.tokens, other.batch.tokens):
        raise ConfigError("the two runs read different tokens", hint="watch both models on one batch")
    rows, columns = ([token_rows(one, name) for name in at or _names(one)] for one in (run, other))
    return np.array([[linear_cka(x, y) for y in columns] for x in rows])


def _names(run: Run) -> list[str]:
    return [point.name for point in points(run)]
