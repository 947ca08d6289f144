"""Table lookup, and the gradient that collects what every row was used for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Array
from ..ops.embedding import EmbeddingSaved
from .compile import compiled
from .layout import is_plain, rows
from .memory import empty


def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> Any:
    """Stand for `ops.embedding`."""
    if type(ids) is not np.ndarray or ids.dtype.kind not in "iu" or table.ndim != 2 or not is_plain(table):
        return NotImplemented
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    if not _are_inside(flat, len(table)):
        return NotImplemented
    y = empty((*ids.shape, table.shape[1]), table.dtype)
    np.take(table, ids, axis=0, out=y, mode="clip")  # they were checked; "raise" would copy the result
    if scale != 1:
        y *= table.dtype.type(scale)
    return y, EmbeddingSaved(table, ids)


def embedding_backward(dy: Array, saved: EmbeddingSaved, *, scale: float = 1.0) -> Any:
    """Stand for `ops.embedding_backward`."""
    table, ids = saved
    if not is_plain(dy, table) or type(ids) is not np.ndarray or dy.shape != (*ids.shape, table.shape[1]):
        return NotImplemented
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    if not _are_inside(flat, len(table)):
        return NotImplemented
    dtable = empty(table.shape, table.dtype)
    dtable[...] = 0
    collect(rows(dy), flat, scale, dtable)
    return dtable


@compiled
def _are_inside(ids, size):
    inside = True
    for i in range(ids.size):
        inside &= (ids[i] >= 0) & (ids[i] < size)
    return inside


@compiled
def collect(dy, ids, scale, dtable):
    """Add scale · dy[i] to row ids[i] of the table, in the order of i."""
    kind = dtable.dtype.type
    for i in range(ids.size):
        row, slope = dtable[ids[i]], dy[i]
        for d in range(row.size):
            row[d] += slope[d] * kind(scale)
