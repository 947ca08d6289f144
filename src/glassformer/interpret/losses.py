"""The loss of logits and its gradient, some rows at a time: of a long text, the logits are the largest array of all."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.dispatch import use_engine
from ..ops.loss import CrossEntropySaved, check_loss

PIECE = 1 << 18
"""Logits of which the loss is computed at once: it takes several times their memory."""


def mean_loss(logits: Array, targets: Array) -> Any:
    """Return the mean cross-entropy of logits (..., V)."""
    losses = np.concatenate([saved.losses for _, saved in _pieces(logits, targets)])
    return losses.sum() / _total(logits, targets)


def loss_gradient(logits: Array, targets: Array) -> Array:
    """Return the gradient of the mean cross-entropy for all logits."""
    dlogits, total = np.empty_like(logits), _total(logits, targets)
    rows = dlogits.reshape(-1, dlogits.shape[-1])
    for part, saved in _pieces(logits, targets):
        with use_engine("numpy"):
            rows[part] = ops.cross_entropy_backward(1.0, saved._replace(total=total))
    return dlogits


def _pieces(logits: Array, targets: Array) -> Iterator[tuple[slice, CrossEntropySaved]]:
    """Return what the cross-entropy of some rows keeps, for all of them."""
    check_loss(logits, targets, None, ops.IGNORE, 0.0)
    rows, flat = logits.reshape(-1, logits.shape[-1]), np.asarray(targets).reshape(-1)
    step = max(1, PIECE // rows.shape[-1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        with use_engine("numpy"):
            saved = ops.cross_entropy(rows[part], flat[part])[1]
        yield part, saved


def _total(logits: Array, targets: Array) -> Array:
    """Return how many targets count, one if none does."""
    counted = np.count_nonzero(np.asarray(targets) != ops.IGNORE)
    return np.asarray(max(1, counted), logits.real.dtype)
