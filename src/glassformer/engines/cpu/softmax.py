"""Softmax along rows, in place."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from .compile import compiled, exp, inlined, is_plain, maximum, rows


@replaces(ops.softmax)
def softmax(x: Array, *, mask: Array | None = None) -> Any:
    if mask is not None or not is_plain(x) or x.ndim < 1:
        return NotImplemented
    y = x.copy()
    if y.size:  # there may be very many rows of nothing
        softmax_in_place(rows(y)[None], *_all_columns(x), 1.0)
    return y, y


@replaces(ops.softmax_backward)
def softmax_backward(dy: Array, y: Array) -> Any:
    if not is_plain(dy, y) or dy.shape != y.shape or y.ndim < 1:
        return NotImplemented
    dx = dy.copy()
    if dx.size:
        softmax_backward_in_place(rows(dx)[None], rows(y)[None], *_all_columns(y), 1.0)
    return dx


def _all_columns(x: Array) -> tuple[Array, Array]:
    return np.zeros(1, np.int64), np.full(1, x.shape[-1], np.int64)


@compiled
def softmax_in_place(x, first, last, scale):
    """Turn x (R, T, S) into softmax(x · scale), row t % len(first) over its columns first … last; zero elsewhere."""
    R, T, _ = x.shape
    for r in range(R):
        for t in range(T):
            start, stop = first[t % first.size], last[t % first.size]
            row = x[r, t]
            row[:start] = 0
            row[stop:] = 0
            softmax_row(row[start:stop], x.dtype.type(scale))


@compiled
def softmax_biased_in_place(x, bias, mask, scale):
    """Turn x (B, H, T, S) into softmax(x · scale + bias) where the mask is True, zero elsewhere."""
    B, H, T, S = x.shape
    for b in range(B):
        for h in range(H):
            for t in range(T):
                row = x[b, h, t]
                for s in range(S):
                    score = row[s] * x.dtype.type(scale) + bias[b, h, t, s]
                    row[s] = score if mask[b, h, t, s] else x.dtype.type(-np.inf)
                softmax_row(row, x.dtype.type(1))


@compiled
def softmax_backward_in_place(dy, y, first, last, scale):
    """Turn dy (R, T, S) into y · (dy − Σ dy · y) · scale over the columns first … last; zero elsewhere."""
    R, T, _ = y.shape
    for r in range(R):
        for t in range(T):
            start, stop = first[t % first.size], last[t % first.size]
            # Slices count from 0, which vectorizes.
            softmax_row_backward(dy[r, t, start:stop], y[r, t, start:stop], y.dtype.type(scale))
            dy[r, t, :start] = 0
            dy[r, t, stop:] = 0


@inlined
def softmax_row_backward(dy, y, scale):
    """Turn the row dy into y · (dy − Σ dy · y) · scale."""
    along = y.dtype.type(0)
    for s in range(y.size):
        along += y[s] * dy[s]
    for s in range(y.size):
        dy[s] = y[s] * (dy[s] - along) * scale


@inlined
def softmax_row(row, scale):
    real = row.dtype.type
    largest = real(-np.inf)
    for s in range(row.size):
        row[s] *= scale
        largest = maximum(largest, row[s])
    if not abs(largest) < np.inf:  # nothing to attend to, or numbers that are none
        largest = real(0)
    total = real(0)
    for s in range(row.size):
        row[s] = exp(row[s] - largest)
        total += row[s]
    if total != 0:
        share = real(1) / total
        for s in range(row.size):
            row[s] *= share
