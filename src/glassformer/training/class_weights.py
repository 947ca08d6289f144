"""Cross-entropy in which some classes weigh more than others, so that rare ones are learned too."""

import functools
from collections.abc import Callable
from typing import Any

from .. import ops
from ..arrays import Array, namespace


@functools.lru_cache(maxsize=8)
def weighted_cross_entropy(weights: tuple[float, ...], smoothing: float) -> tuple[Callable[..., Any], ...]:
    """Return the loss and its backward, as `register_loss` takes them.

        loss = Σ w[target] · loss of the target / number of targets

    The sum is divided by how many targets count, not by their weights: so the mean over parts of a batch is that of the
    whole batch, however it is cut into microbatches and shards.
    """

    def forward(logits: Array, targets: Array) -> tuple[Array, tuple[Any, Array]]:
        xp = namespace(logits)
        w = xp.asarray(weights, dtype=logits.dtype)
        loss, saved = ops.cross_entropy(logits, targets, class_weights=w, smoothing=smoothing)
        counted = xp.sum(xp.asarray(targets) != ops.IGNORE)
        # loss = Σ … / Σ w[target], and Σ w[target] is saved.total
        share = saved.total / xp.maximum(counted, 1).astype(logits.dtype)
        return loss * share, (saved, share)

    def backward(dloss: Array, saved: tuple[Any, Array]) -> Array:
        return ops.cross_entropy_backward(dloss * saved[1], saved[0], smoothing=smoothing)

    return forward, backward
