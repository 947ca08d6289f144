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
    y = empty((*ids.shape, table.shape[1]), table.dtype)
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    return (y, EmbeddingSaved(table, ids)) if _look_up(table, flat, scale, rows(y)) else NotImplemented


def embedding_backward(dy: Array, saved: EmbeddingSaved, *, scale: float = 1.0) -> Any:
    """Stand for `ops.embedding_backward`."""
    table, ids = saved
    if not is_plain(dy, table) or type(ids) is not np.ndarray or dy.shape != (*ids.shape, table.shape[1]):
        return NotImplemented
    dtable = np.zeros(table.shape, table.dtype)
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    return dtable if collect(rows(dy), flat, scale, dtable) else NotImplemented


@compiled
def _look_up(table, ids, scale, y):
    """Fill in scale · table[ids]; False if one is outside."""
    kind = table.dtype.type
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= table.shape[0]:
            return False
        row, out = table[ids[i]], y[i]
        for d in range(row.size):
            out[d] = row[d] * kind(scale)
    return True


@compiled
def collect(dy, ids, scale, dtable):
    """Add scale · dy[i] to row ids[i] of the table, in the order of i; False, midway, if one is outside."""
    kind = dtable.dtype.type
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= dtable.shape[0]:
            return False
        row, slope = dtable[ids[i]], dy[i]
        for d in range(row.size):
            row[d] += slope[d] * kind(scale)
    return True
