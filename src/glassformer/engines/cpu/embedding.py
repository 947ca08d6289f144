"""Table lookup, and the gradient that collects what every row was used for."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.embedding import EmbeddingSaved
from .compile import compiled, is_plain, rows


@replaces(ops.embedding)
def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> Any:
    if not is_plain(table) or table.ndim != 2 or type(ids) is not np.ndarray or ids.dtype.kind not in "iu":
        return NotImplemented
    y = np.empty((*ids.shape, table.shape[1]), table.dtype)
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    return (y, EmbeddingSaved(table, ids)) if _look_up(table, flat, scale, rows(y)) else NotImplemented


@replaces(ops.embedding_backward)
def embedding_backward(dy: Array, saved: EmbeddingSaved, *, scale: float = 1.0) -> Any:
    table, ids = saved
    if not is_plain(dy, table) or table.ndim != 2 or type(ids) is not np.ndarray or ids.dtype.kind not in "iu":
        return NotImplemented
    if dy.shape != (*ids.shape, table.shape[1]):
        return NotImplemented
    dtable = np.zeros(table.shape, table.dtype)
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    return dtable if collect(rows(dy), flat, scale, dtable) else NotImplemented


@compiled
def _look_up(table, ids, scale, y):
    """Fill in scale · table[ids]; False if one is outside."""
    real = table.dtype.type
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= table.shape[0]:
            return False
        row, out = table[ids[i]], y[i]
        for d in range(row.size):
            out[d] = row[d] * real(scale)
    return True


@compiled
def collect(dy, ids, scale, dtable):
    """Add scale · dy[i] to row ids[i] of the table, in the order of i; False, midway, if one is outside."""
    real = dtable.dtype.type
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= dtable.shape[0]:
            return False
        drow, dout = dtable[ids[i]], dy[i]
        for d in range(drow.size):
            drow[d] += dout[d] * real(scale)
    return True
