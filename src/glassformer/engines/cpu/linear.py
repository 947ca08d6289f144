"""The affine map: one matrix product for all rows, into memory that is used again."""

from typing import Any

import numpy as np

from ... import ops
from ...arrays import Array
from ...dispatch import replaces
from ...ops.linear import LinearSaved
from .layout import REAL, rows
from .matvec import multiply_few

LARGE = 1 << 16  # numbers in a matrix that a few rows are better multiplied by on all cores


@replaces(ops.linear)
def linear(x: Array, w: Array, b: Array | None = None) -> Any:
    if not _fits(x, w, b) or x.shape[-1] != w.shape[0]:
        return NotImplemented
    few = multiply_few(rows(x), w) if w.size >= LARGE and x.dtype == np.float32 else NotImplemented
    if few is NotImplemented:
        y = np.empty((*x.shape[:-1], w.shape[1]), x.dtype)
        np.matmul(rows(x), w, out=rows(y))
    else:
        y = few.reshape(*x.shape[:-1], w.shape[1])
    if b is not None:
        y += b
    return y, LinearSaved(x, w, b)


@replaces(ops.linear_backward)
def linear_backward(dy: Array, saved: LinearSaved) -> Any:
    x, w, b = saved
    if not _fits(x, w, b) or not _fits(dy, w, b) or (*x.shape, dy.shape[-1]) != (*dy.shape[:-1], *w.shape):
        return NotImplemented
    dx, dw = np.empty(x.shape, x.dtype), np.empty(w.shape, x.dtype)
    dout = rows(dy)
    np.matmul(dout, w.T, out=rows(dx))
    np.matmul(rows(x).T, dout, out=dw)
    return dx, dw, None if b is None else dout.sum(axis=0)


def _fits(x: Array, w: Array, b: Array | None) -> bool:
    """Tell whether all are NumPy's own arrays of one real type, w a matrix and b a vector for it."""
    if not type(x) is type(w) is np.ndarray or x.ndim < 1 or w.ndim != 2:
        return False
    if b is not None and (type(b) is not np.ndarray or b.dtype != x.dtype or b.shape != w.shape[1:]):
        return False
    return x.dtype in REAL and w.dtype == x.dtype
