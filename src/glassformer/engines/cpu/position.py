"""Rotary positions on heads as they lie in memory, (B, T, H, C)."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.position import RotarySaved
from .compile import REAL, compiled, is_array


@replaces(ops.rotary)
def rotary(x: Array, cos: Array, sin: Array, *, pairing: str = "halves") -> Any:
    """Rotate by angles (T, C/2) that all sequences share."""
    if not type(x) is type(cos) is type(sin) is np.ndarray or x.dtype not in REAL or not cos.ndim == sin.ndim == 2:
        return NotImplemented
    cos, sin = (np.ascontiguousarray(table, x.dtype) for table in (cos, sin))
    y = _turned(x, cos, sin, 1.0, pairing)
    return y if y is NotImplemented else (y, RotarySaved(cos, sin))


@replaces(ops.rotary_backward)
def rotary_backward(dy: Array, saved: RotarySaved, *, pairing: str = "halves") -> Any:
    return _turned(dy, saved.cos, saved.sin, -1.0, pairing)


def _turned(x: Array, cos: Array, sin: Array, direction: float, pairing: str) -> Any:
    if type(x) is not np.ndarray or x.ndim < 2 or x.dtype not in REAL or pairing not in PAIRINGS:
        return NotImplemented
    shape = x.shape[-2], x.shape[-1] // 2
    if x.shape[-1] % 2 or not is_array(cos, x.dtype, shape) or not is_array(sin, x.dtype, shape):
        return NotImplemented
    from_rows = x.ndim == 4 and x.swapaxes(1, 2).flags.c_contiguous  # heads cut out of rows
    if not from_rows and not x.flags.c_contiguous:
        return NotImplemented
    T, C = x.shape[-2:]
    memory = x.swapaxes(1, 2) if from_rows else x.reshape(x.size // max(T * C, 1), T, 1, C)
    y = np.empty(memory.shape, x.dtype)
    PAIRINGS[pairing](memory, cos, sin, direction, y)
    return y.swapaxes(1, 2) if from_rows else y.reshape(x.shape)


@compiled
def _turn_halves(x, cos, sin, direction, y):
    B, T, H, C = x.shape
    half = C // 2
    sign = x.dtype.type(direction)
    for b in range(B):
        for t in range(T):
            for h in range(H):
                a, z = x[b, t, h, :half], x[b, t, h, half:]
                c, s = cos[t], sin[t]
                first, second = y[b, t, h, :half], y[b, t, h, half:]
                for i in range(half):
                    first[i] = a[i] * c[i] - z[i] * s[i] * sign
                for i in range(half):
                    second[i] = z[i] * c[i] + a[i] * s[i] * sign


@compiled
def _turn_interleaved(x, cos, sin, direction, y):
    B, T, H, C = x.shape
    sign = x.dtype.type(direction)
    for b in range(B):
        for t in range(T):
            for h in range(H):
                row, c, s, out = x[b, t, h], cos[t], sin[t], y[b, t, h]
                for i in range(C // 2):
                    out[2 * i] = row[2 * i] * c[i] - row[2 * i + 1] * s[i] * sign
                    out[2 * i + 1] = row[2 * i + 1] * c[i] + row[2 * i] * s[i] * sign


PAIRINGS = {"halves": _turn_halves, "interleaved": _turn_interleaved}
