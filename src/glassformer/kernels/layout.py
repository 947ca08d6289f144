"""Which arrays kernels take: plain real ones, in C order or as heads cut out of rows."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Array

REAL = "fd"  # float32 and float64


def is_plain(x: Array, *others: Array) -> bool:
    """Tell whether all are NumPy's own arrays in C order and share one real type."""
    if type(x) is not np.ndarray or x.dtype.char not in REAL or not x.flags.c_contiguous:
        return False
    # A loop, not all(...): this is asked forty times in a step of a small model.
    for other in others:
        if type(other) is not np.ndarray or other.dtype != x.dtype or not other.flags.c_contiguous:
            return False
    return True


def rows(x: Array) -> Array:
    """View x (..., D) in C order as (N, D)."""
    if x.ndim == 2:
        return x
    return x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.reshape(math.prod(x.shape[:-1]), 0)
