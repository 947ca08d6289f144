"""Optimizer updates: every number is read once and written once."""

from typing import Any

import numpy as np

from ... import ops
from ...arrays import Array
from ...dispatch import replaces
from .compile import compiled
from .layout import is_plain


@replaces(ops.adam_update)
def adam_update(
    p: Array, g: Array, mean: Array, square: Array, *,
    rate: Any, root: Any, beta1: float, beta2: float, eps: float, penalty: float = 0.0, shrink: Any = 1.0,
) -> Any:  # fmt: skip
    if not is_plain(p, g, mean, square) or not g.shape == mean.shape == square.shape == p.shape:
        return NotImplemented
    p, mean, square = p.copy(), mean.copy(), square.copy()
    flat = p.reshape(-1), g.reshape(-1), mean.reshape(-1), square.reshape(-1)
    adam(flat, (float(penalty), float(shrink)), (float(rate), float(root), beta1, beta2, eps))
    return p, mean, square


@replaces(ops.lion_update)
def lion_update(p: Array, g: Array, mean: Array, *, lr: Any, beta1: float, beta2: float, shrink: Any = 1.0) -> Any:
    if not is_plain(p, g, mean) or not g.shape == mean.shape == p.shape:
        return NotImplemented
    p, mean = p.copy(), mean.copy()
    _lion(p.reshape(-1), g.reshape(-1), mean.reshape(-1), float(lr), beta1, beta2, float(shrink))
    return p, mean


def add_weighted(total: Array, x: Array, keep: float, share: float) -> None:
    """Turn total into keep · total + share · x, in place."""
    if is_plain(total, x) and total.shape == x.shape:
        add_weighted_numbers(total.reshape(-1), x.reshape(-1), keep, share)
    else:
        total *= total.dtype.type(keep)
        total += x * x.dtype.type(share)


@compiled
def add_weighted_numbers(total, x, keep, share):
    """Turn total into keep · total + share · x."""
    real = total.dtype.type
    for i in range(total.size):
        total[i] = total[i] * real(keep) + x[i] * real(share)


@compiled
def adam(arrays, decay, settings):
    """Take a step of Adam on p, g, mean and square, by penalty and shrink, and by rate, root, beta1, beta2 and eps."""
    (p, g, mean, square), (penalty, shrink), (rate, root, beta1, beta2, eps) = arrays, decay, settings
    real = p.dtype.type
    rest1, rest2 = real(1 - beta1), real(1 - beta2)
    for i in range(p.size):
        dp = g[i] + real(penalty) * p[i]
        m = real(beta1) * mean[i] + rest1 * dp
        s = real(beta2) * square[i] + rest2 * (dp * dp)
        mean[i] = m
        square[i] = s
        p[i] = p[i] * real(shrink) - real(rate) * m / (np.sqrt(s) / real(root) + real(eps))


@compiled
def _lion(p, g, mean, lr, beta1, beta2, shrink):
    real = p.dtype.type
    rest1, rest2 = real(1 - beta1), real(1 - beta2)
    for i in range(p.size):
        way = real(beta1) * mean[i] + rest1 * g[i]
        p[i] = p[i] * real(shrink) - real(lr) * np.sign(way)
        mean[i] = real(beta2) * mean[i] + rest2 * g[i]


@compiled
def square_sum(x):
    """Return Σ x²."""
    # Short sums in the type of x, added up in float64: millions of small terms must not vanish beside their sum.
    total = 0.0
    for start in range(0, x.size, 4096):
        part = x[start : start + 4096]
        square = x.dtype.type(0)
        for i in range(part.size):
            square += part[i] * part[i]
        total += square
    return total
