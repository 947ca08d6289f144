"""Rotary positions on heads as they lie in memory, (B, T, H, C)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Array
from ..ops.position import RotarySaved
from .compile import compiled
from .layout import REAL, is_plain
from .memory import empty


def rotary(x: Array, cos: Array, sin: Array, *, pairing: str = "halves") -> Any:
    """Stand for `ops.rotary`, for angles (T, C/2) that all sequences share."""
    if 2 * cos.shape[-1] != x.shape[-1]:
        return NotImplemented
    kind = x.dtype
    cos, sin = (np.ascontiguousarray(table, kind) if kind.char in REAL else table for table in (cos, sin))
    y = _turned(x, cos, sin, 1.0, pairing)
    return y if y is NotImplemented else (y, RotarySaved(cos, sin))


def rotary_backward(dy: Array, saved: RotarySaved, *, pairing: str = "halves") -> Any:
    """Stand for `ops.rotary_backward`."""
    return _turned(dy, saved.cos, saved.sin, -1.0, pairing)


def _turned(x: Array, cos: Array, sin: Array, direction: float, pairing: str) -> Any:
    shape = (x.shape[-2], x.shape[-1] // 2) if x.ndim >= 2 else None
    if cos.shape != shape or sin.shape != shape or x.dtype.char not in REAL or x.dtype != cos.dtype:
        return NotImplemented
    if pairing not in _PAIRINGS or not is_plain(cos, sin):
        return NotImplemented
    if x.ndim == 4 and x.swapaxes(1, 2).flags.c_contiguous:
        memory = x.swapaxes(1, 2)  # heads cut out of rows
        y = empty(memory.shape, x.dtype)
        _PAIRINGS[pairing](memory, cos, sin, direction, y)
        return y.swapaxes(1, 2)
    if not x.flags.c_contiguous:
        return NotImplemented
    y = empty(x.shape, x.dtype)
    T, C = x.shape[-2:]
    lead = x.size // max(T * C, 1)
    _PAIRINGS[pairing](x.reshape(lead, T, 1, C), cos, sin, direction, y.reshape(lead, T, 1, C))
    return y


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


_PAIRINGS = {"halves": _turn_halves, "interleaved": _turn_interleaved}


@compiled
def turn(x, cos, sin, direction, interleaved):
    """Turn heads x (B, T, H, C) by the angles of their positions, in place."""
    B, T, H, C = x.shape
    half = C // 2
    for b in range(B):
        for t in range(T):
            c, s = cos[t], sin[t]
            for h in range(H):
                row = x[b, t, h]
                for i in range(half):
                    first, second = (2 * i, 2 * i + 1) if interleaved else (i, half + i)
                    a, z = row[first], row[second]
                    row[first] = a * c[i] - z * s[i] * direction
                    row[second] = z * c[i] + a * s[i] * direction
