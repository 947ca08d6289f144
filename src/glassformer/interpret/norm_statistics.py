"""Norms taken apart: what their mean and their root get as gradients, and norms whose statistics were changed.

The backward passes of ops fold the mean and the root of a norm into one formula. Here it is unfolded, so that each has
a gradient of its own, and may have been replaced by something that depends on x in another way, or not at all:

    u = x − mean      x̂ = u · rstd      y = gamma · x̂ + beta      mean = average x      rstd = 1 / √(average u² + eps)

    drstd = Σ dx̂ · u                    rstd = (v + eps)^(−1/2), so dv = −rstd³/2 · drstd, with v = average u²
    du = dx̂ · rstd + 2 u dv / D         dmean = −Σ du         dx = du + dmean / D
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..arrays import Array, namespace

Undo = Callable[[Array], Array]


class Unfolded(NamedTuple):
    """The gradients of what a norm read, and of its two statistics; an RMS norm has no mean."""

    x: Array
    mean: Array | None
    root: Array


def unfolded(
    dy: Array, x: Array, mean: Array | None, root: Array, gamma: Array, *, made: Array, undo_mean: Undo, undo_root: Undo
) -> Unfolded:
    """Return the gradients of a norm, part by part.

    mean, root              as they were used; `made` is the root as it was computed, before any change
    undo_mean, undo_root    what a change does to the gradient of each
    """
    xp, features = namespace(x), x.shape[-1]
    u = x if mean is None else x - mean
    dx_hat = dy * gamma
    droot = xp.sum(dx_hat * u, axis=-1, keepdims=True)
    dv = -(made**3) / 2 * undo_root(droot)
    du = dx_hat * root + 2 * u * dv / features
    if mean is None:
        return Unfolded(du, None, droot)
    dmean = -xp.sum(du, axis=-1, keepdims=True)
    return Unfolded(du + undo_mean(dmean) / features, dmean, droot)
