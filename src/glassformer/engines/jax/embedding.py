"""Rows looked up, and added up, by their ids."""

from __future__ import annotations

from ... import ops
from ...arrays import Array, cast, check_ids, is_half, namespace, widen
from ...dispatch import stands_for
from ...ops.embedding import EmbeddingSaved
from ...ops.embedding import scatter_add as written_scatter_add


@stands_for(ops.embedding)
def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> tuple[Array, EmbeddingSaved]:
    """Look up rows of half precision, and widen only these."""
    if not is_half(table):
        return NotImplemented
    check_ids(ids, table.shape[0])
    y = table[ids]
    return (y if scale == 1 else cast(widen(y) * scale, y.dtype)), EmbeddingSaved(table, ids)


@stands_for(written_scatter_add)
def scatter_add(rows: Array, ids: Array, *, shape: tuple[int, ...]) -> Array:
    """Add rows (..., D), in float32 where they are narrower, into zeros of `shape` (V, D) at `ids` (...)."""
    wide = widen(rows).reshape(-1, shape[-1])
    return cast(namespace(rows).zeros(shape, wide.dtype).at[ids.reshape(-1)].add(wide), rows.dtype)
