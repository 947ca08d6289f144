"""Optimizer updates: every number is read once and written once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Array
from .compile import compiled
from .layout import is_plain


def adam_update(
    p: Array,
    g: Array,
    mean: Array,
    square: Array,
    *,
    rate: Any,
    root: Any,
    beta1: float,
    beta2: float,
    eps: float,
    penalty: float = 0.0,
    shrink: Any = 1.0,
    out: tuple[Array, Array, Array] | None = None,
) -> Any:
    """Stand for `ops.adam_update`."""
    if not g.shape == mean.shape == square.shape == p.shape or not is_plain(p, g, mean, square):
        return NotImplemented
    p, mean, square = _to_overwrite((p, mean, square), out)
    flat = p.reshape(-1), g.reshape(-1), mean.reshape(-1), square.reshape(-1)
    adam(*flat, float(rate), float(root), beta1, beta2, eps, penalty, float(shrink))
    return p, mean, square


def lion_update(
    p: Array,
    g: Array,
    mean: Array,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    shrink: Any = 1.0,
    out: tuple[Array, Array] | None = None,
) -> Any:
    """Stand for `ops.lion_update`."""
    if not g.shape == mean.shape == p.shape or not is_plain(p, g, mean):
        return NotImplemented
    p, mean = _to_overwrite((p, mean), out)
    _lion(p.reshape(-1), g.reshape(-1), mean.reshape(-1), float(lr), beta1, beta2, float(shrink))
    return p, mean


def sum_of_squares(x: Array) -> Any:
    """Stand for `ops.sum_of_squares`."""
    return x.dtype.type(square_sum(x.reshape(-1))) if is_plain(x) else NotImplemented


def _to_overwrite(arrays: tuple[Array, ...], out: tuple[Array, ...] | None) -> tuple[Array, ...]:
    """Return arrays of the same numbers that may be written to: those of `out`, else copies."""
    if out is None:
        return tuple(x.copy() for x in arrays)
    for x, place in zip(arrays, out, strict=True):
        if place is not x:
            place[...] = x
    return out


def add_weighted(total: Array, x: Array, keep: float, share: float) -> None:
    """Turn total into keep · total + share · x, in place."""
    if is_plain(total, x):
        add_weighted_arrays(total.reshape(-1), x.reshape(-1), keep, share)
    else:
        total *= total.dtype.type(keep)
        total += x * x.dtype.type(share)


@compiled
def add_weighted_arrays(total, x, keep, share):
    kind = total.dtype.type
    for i in range(total.size):
        total[i] = total[i] * kind(keep) + x[i] * kind(share)


@compiled
def adam(p, g, mean, square, rate, root, beta1, beta2, eps, penalty, shrink):
    kind = p.dtype.type
    rest1, rest2 = kind(1 - beta1), kind(1 - beta2)
    for i in range(p.size):
        slope = g[i] + kind(penalty) * p[i]
        m = kind(beta1) * mean[i] + rest1 * slope
        s = kind(beta2) * square[i] + rest2 * (slope * slope)
        mean[i] = m
        square[i] = s
        p[i] = p[i] * kind(shrink) - kind(rate) * m / (np.sqrt(s) / kind(root) + kind(eps))


@compiled
def _lion(p, g, mean, lr, beta1, beta2, shrink):
    kind = p.dtype.type
    rest1, rest2 = kind(1 - beta1), kind(1 - beta2)
    for i in range(p.size):
        way = kind(beta1) * mean[i] + rest1 * g[i]
        p[i] = p[i] * kind(shrink) - kind(lr) * np.sign(way)
        mean[i] = kind(beta2) * mean[i] + rest2 * g[i]


@compiled
def square_sum(x):
    # Short sums in the type of x, added up in float64: millions of small terms must not vanish beside their sum.
    total = 0.0
    for start in range(0, x.size, 4096):
        part = x[start : start + 4096]
        square = x.dtype.type(0)
        for i in range(part.size):
            square += part[i] * part[i]
        total += square
    return total
