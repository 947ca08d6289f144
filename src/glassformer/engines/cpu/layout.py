"""Which arrays kernels take: plain real ones, in C order or as heads cut out of rows."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy import ndarray

from ...arrays import Array

REAL = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""The types that are compiled for, in the machine's own order of bytes."""


def is_plain(x: Array, *others: Array) -> bool:
    """Tell whether all are NumPy's own arrays in C order and share one real type."""
    if type(x) is not np.ndarray or x.dtype not in REAL or not x.flags.c_contiguous:
        return False
    # A loop, not all(...): this is asked forty times in a step of a small model.
    for other in others:
        if type(other) is not ndarray or other.dtype != x.dtype or not other.flags.c_contiguous:
            return False
    return True


def is_array(x: Any, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Tell whether x is NumPy's own array of this type and shape, in C order."""
    return type(x) is np.ndarray and x.shape == shape and x.dtype == dtype and x.flags.c_contiguous


def are_arrays(arrays: Iterable[Any], dtype: np.dtype, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Tell whether all are NumPy's own arrays of this type, each of its shape, in C order."""
    for x, shape in zip(arrays, shapes, strict=True):  # no call for each: a step asks this of fifty
        if type(x) is not ndarray or x.shape != shape or x.dtype != dtype or not x.flags.c_contiguous:
            return False
    return True


def rows(x: Array) -> Array:
    """View x (..., D) in C order as (N, D)."""
    if x.ndim == 2:
        return x
    return x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.reshape(math.prod(x.shape[:-1]), 0)
