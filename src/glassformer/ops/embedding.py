"""Table lookup, and pooling a sequence into one vector: how tokens enter, and how a whole sequence leaves.

Both are linear maps in disguise. A lookup is a product with a matrix of zeros and ones, a mean one with equal shares;
their gradients are the products with the transposed matrices, computed without ever making these.
"""

from typing import NamedTuple

import numpy as np

from ..core.arrays import Array, check_ids, check_mask, namespace
from ..core.dispatch import dispatched
from ..core.quantized import check_learnable


class EmbeddingSaved(NamedTuple):
    table: Array  # (V, D)
    ids: Array  # (...)


@dispatched
def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> tuple[Array, EmbeddingSaved]:
    """Look up one row of the table (V, D) for every id (...): y = scale · table[ids], shape (..., D).

    The row is all that the model knows of a token before it has seen its neighbors. Ids have no gradient: there is no
    token between two tokens.
    """
    namespace(table)
    check_ids(ids, table.shape[0])
    y = table[ids]
    return (y if scale == 1 else y * scale), EmbeddingSaved(table, ids)


@dispatched
def embedding_backward(dy: Array, saved: EmbeddingSaved, *, scale: float = 1.0) -> Array:
    """Gradient of `embedding`: a row that was looked up several times collects all its gradients.

        dtable[v] = scale · Σ dy[i] over all i with ids[i] = v

    Rows that were not looked up get zeros, which in a large vocabulary are most rows of a step.
    """
    check_learnable(saved.table)
    # y = scale · table[ids]
    dtable = scatter_add(dy, saved.ids, shape=tuple(saved.table.shape))
    return dtable if scale == 1 else dtable * scale


@dispatched
def scatter_add(rows: Array, ids: Array, *, shape: tuple[int, ...]) -> Array:
    """Add `rows` (..., D) into zeros of `shape` (V, D) at `ids` (...); ids that repeat add up."""
    table = np.zeros(shape, rows.dtype)
    # Plain indexing would write a repeated id once, and lose all but its last row.
    np.add.at(table, ids.reshape(-1), rows.reshape(-1, shape[-1]))
    return table


class MeanPoolSaved(NamedTuple):
    share: Array  # (..., T, 1): what each position contributes to the mean


@dispatched(wide=("share",))
def mean_pool(x: Array, *, mask: Array | None = None) -> tuple[Array, MeanPoolSaved]:
    """Average x (..., T, D) over its positions, only those where mask (..., T) is True: (..., D).

    y = Σ mask · x / Σ mask;   zeros where no position is left
    """
    xp = namespace(x)
    positions = tuple(x.shape[:-1])
    if mask is None:
        counted = xp.ones((*positions, 1), dtype=x.dtype)
    else:
        check_mask(mask, positions)
        counted = xp.broadcast_to(mask, positions)[..., None].astype(x.dtype)
    total = xp.sum(counted, axis=-2, keepdims=True)
    share = counted / xp.where(total == 0, 1, total)
    return xp.sum(x * share, axis=-2), MeanPoolSaved(share)


@dispatched
def mean_pool_backward(dy: Array, saved: MeanPoolSaved) -> Array:
    """Gradient of `mean_pool`: every counted position gets its share, dx = dy · mask / Σ mask."""
    # y = Σ x · share over the positions
    return dy[..., None, :] * saved.share
