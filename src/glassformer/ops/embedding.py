"""Table lookup, and pooling a sequence into one vector."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import Array, cast, check_ids, check_mask, namespace, widen
from ..backend import scatter_add
from ..engine import accelerated
from ..quantized import check_learnable


class EmbeddingSaved(NamedTuple):
    table: Array
    ids: Array


@accelerated
def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> tuple[Array, EmbeddingSaved]:
    """Look up one row of the table (V, D) for every id (...): y = scale · table[ids], shape (..., D)."""
    namespace(table)
    check_ids(ids, table.shape[0])
    y = table[ids]
    return (y if scale == 1 else y * scale), EmbeddingSaved(table, ids)


@accelerated
def embedding_backward(dy: Array, saved: EmbeddingSaved, *, scale: float = 1.0) -> Array:
    """Gradient of `embedding`: a row that was looked up several times collects all its gradients.

    dtable[v] = scale · Σ dy[i] over all i with ids[i] = v
    """
    check_learnable(saved.table)
    dtable = scatter_add(tuple(saved.table.shape), saved.ids, widen(dy))
    return cast(dtable if scale == 1 else dtable * scale, saved.table.dtype)


class MeanPoolSaved(NamedTuple):
    share: Array  # (..., T, 1): what each position contributes to the mean


def mean_pool(x: Array, *, mask: Array | None = None) -> tuple[Array, MeanPoolSaved]:
    """Average x (..., T, D) over its positions, only those where mask (..., T) is True.

    y = Σ mask · x / Σ mask;   zeros where no position is left
    """
    xp = namespace(x)
    positions = tuple(x.shape[:-1])
    if mask is None:
        counted = xp.ones((*positions, 1), dtype=widen(x).dtype)
    else:
        check_mask(mask, positions)
        counted = xp.broadcast_to(mask, positions)[..., None].astype(widen(x).dtype)
    total = xp.sum(counted, axis=-2, keepdims=True)
    share = counted / xp.where(total == 0, 1, total)
    return cast(xp.sum(widen(x) * share, axis=-2), x.dtype), MeanPoolSaved(share)


def mean_pool_backward(dy: Array, saved: MeanPoolSaved) -> Array:
    """Gradient of `mean_pool`: every counted position gets its share, dx = dy · mask / Σ mask."""
    return cast(dy[..., None, :] * saved.share, dy.dtype)
