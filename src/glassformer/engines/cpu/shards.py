"""A batch in shards, one for each core.

Every core computes the loss and the gradients of its own sequences, with matrix products of one thread; the results are
added up in a fixed order. This keeps all cores busy throughout the step, where threads inside of a product leave
them idle between products. The number of shards decides the order of the sums, and so the last bits of the result.
"""

from functools import partial
from typing import Any

import numpy as np

from ... import ops
from ...arrays import Array, Tree
from ...config import TransformerConfig
from ...data.examples import count_targets
from ...models import Batch, Model
from ...models.accounting import flops_per_token
from ...training.gradients import target_shares
from ...tree import flatten
from .all_arrays import add_to_all
from .cores import cores, each
from .update import add_weighted

WORTHWHILE = 2e8
"""A shard with fewer FLOPs in its step costs more to hand out than it saves; measured by benchmarks/shards.py."""


def suitable_shards(config: TransformerConfig, batch: int) -> int:
    """Return in how many shards a step on `batch` full sequences is computed fastest on this machine."""
    flops = 3 * flops_per_token(config, config.context) * config.context * batch
    return max(1, min(cores(), batch, int(flops // WORTHWHILE)))


def loss_and_grads(
    model: Model, params: Tree, batch: Batch, *, shards: int, key: Array | None = None, smoothing: float = 0.0
) -> tuple[Array, Tree]:
    """Return what `model.loss_and_grads` does, computed in `shards` parts at the same time.

    With dropout, every shard draws its own mask.
    """
    shards = min(shards, len(batch.tokens)) if batch.tokens.ndim > 1 else 1
    if shards < 2:
        return model.loss_and_grads(params, batch, key=key, smoothing=smoothing)
    parts = [_part(batch, number, shards) for number in range(shards)]

    def task(number: int) -> tuple[Any, Tree]:
        own = None if key is None else ops.fold_key(key, number)
        return model.loss_and_grads(params, parts[number], key=own, smoothing=smoothing)

    results = each([partial(task, number) for number in range(shards)])
    shares: list[float] = target_shares(np.array([count_targets(part) for part in parts])).tolist()
    loss = sum(share * loss for share, (loss, _) in zip(shares, results, strict=True))
    _add_up([grads for _, grads in results], shares)
    return np.asarray(loss, results[0][0].dtype), results[0][1]


def _part(batch: Batch, number: int, shards: int) -> Batch:
    size = len(batch.tokens)
    rows = slice(size * number // shards, size * (number + 1) // shards)
    return Batch(*(None if array is None else array[rows] for array in batch))


def _add_up(grads: list[Tree], shares: list[float]) -> None:
    """Turn the gradients of the first shard into the weighted sum of all, in place."""
    totals, *rest = (list(flatten(tree).values()) for tree in grads)
    keep = shares[0]
    for others, share in zip(rest, shares[1:], strict=True):
        if not add_to_all(totals, others, keep, share):
            for total, other in zip(totals, others, strict=True):
                add_weighted(total, other, keep, share)
        keep = 1.0
