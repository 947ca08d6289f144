"""Dropout in one pass: the generator of `ops.dropout`, number by number."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.dropout import MOST
from .compile import compiled, inlined, is_array, is_plain, rows

GOLDEN = 0x9E3779B9
_WORD = 0xFFFFFFFF
_BOOL = np.dtype(np.bool_)


@replaces(ops.dropout)
def dropout(x: Array, key: Array, *, rate: float) -> Any:
    if not is_plain(x) or x.ndim < 1 or not is_key(key) or not 0 <= rate < MOST:
        return NotImplemented
    y, keep = np.empty_like(x), np.empty(x.shape, np.bool_)
    if x.size:  # there may be very many rows of nothing
        _dropout(rows(x), key, np.uint32(round(rate * 2**32)), 1 / (1 - rate), rows(y), rows(keep))
    return y, keep


@replaces(ops.dropout_backward)
def dropout_backward(dy: Array, keep: Array, *, rate: float) -> Any:
    if not is_plain(dy) or not is_array(keep, _BOOL, dy.shape) or not 0 <= rate < MOST:
        return NotImplemented
    dx = np.empty_like(dy)
    _drop(dy.reshape(-1), keep.reshape(-1), 1 / (1 - rate), dx.reshape(-1))
    return dx


def is_key(key: Any) -> bool:
    return type(key) is np.ndarray and key.dtype == np.uint32 and key.shape == (2,)


@replaces(ops.fold_key)
def fold_key(key: Array, number: int) -> Any:
    """Fold a number into a key: for two words, Python's own integers are faster than arrays."""
    if not is_key(key):
        return NotImplemented
    first, second = int(key[0]), int(key[1])
    low = _mixed(_mixed((first + number * GOLDEN) & _WORD) ^ second)
    high = _mixed((low + first + GOLDEN) & _WORD)
    return np.array([low, high], np.uint32)


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
    return x ^ (x >> 16)


@inlined
def mix(x):
    """Let every bit of a word influence every other, as `ops.dropout` does."""
    # Products and sums of 32-bit words come out with 64 bits, so each is cut again: within 32 they vectorize.
    u = np.uint32
    x = u(u(x ^ u(x >> u(16))) * u(0x7FEB352D))
    x = u(u(x ^ u(x >> u(15))) * u(0x846CA68B))
    return u(x ^ u(x >> u(16)))


@compiled
def _dropout(x, key, border, factor, y, keep):
    N, D = x.shape
    real = x.dtype.type
    for n in range(N):
        row, out, kept = x[n], y[n], keep[n]
        start = mix(np.uint32(np.uint32(n) ^ key[0]))
        last = np.uint32(start + key[1])
        for d in range(D):
            place = np.uint32(start + np.uint32(np.uint32(d) * np.uint32(GOLDEN)))
            bits = mix(np.uint32(mix(place) ^ last))
            kept[d] = bits >= border
            out[d] = row[d] * real(factor) if kept[d] else real(0)


@compiled
def _drop(dy, keep, factor, dx):
    real = dy.dtype.type
    for i in range(dy.size):
        dx[i] = dy[i] * real(factor) if keep[i] else real(0)
