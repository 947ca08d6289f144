"""Strided sparse attention as two parts that add up, each of them cheap: O(T √T) in all with a stride of √T.

A query sees its neighborhood, |distance| < stride, and every stride-th key beyond: exactly the other positions that
leave the same remainder when divided by the stride. Two steps then reach any key (Child et al. 2019): one of the
query's neighbors leaves the same remainder as that key, and sees it.

So the pattern is a window, and dense attention of T / stride positions among themselves for each remainder, which
becomes one more batch axis. Softmax joins the parts by the logarithms of their sums; given the joint sum, gradients of
the parts simply add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array, namespace
from .mask import Pattern


@dataclass(frozen=True)
class Others(Pattern):
    """A pattern by which no query sees itself."""

    @property
    def is_full(self) -> bool:
        return False

    @property
    def is_span(self) -> bool:
        return super().is_span and self.causal and self.prefix == 0

    def tile(self, rows: Array, columns: Array) -> Array:
        return super().tile(rows, columns) & (np.asarray(rows)[:, None] != np.asarray(columns))

    def spans(self, rows: range, keys: int) -> tuple[Array, Array]:
        first, last = super().spans(rows, keys)
        if self.is_span:
            last = np.minimum(last, np.asarray(rows))
        return np.minimum(first, last), last


def can_split(q: Array, k: Array, bias: Array | None, mask: Array | None, pattern: Pattern) -> bool:
    """Return whether attention is strided and falls into parts: among equals, with no mask but of whole keys.

    A bias or a mask of every pair of positions is itself quadratic, so nothing would be won. A prefix is seen by all,
    which is neither near nor a matter of remainders.
    """
    if pattern.stride is None or (pattern.causal and pattern.prefix) or q.shape[-2] != k.shape[-2]:
        return False
    return bias is None and (mask is None or mask.ndim < 2 or mask.shape[-2] == 1)


def neighborhood(pattern: Pattern) -> Pattern:
    """Return the part of a strided pattern closer than the stride: about T · stride pairs, if causal."""
    assert pattern.stride is not None
    reach = pattern.stride if pattern.window is None else min(pattern.stride, pattern.window)
    return Pattern(causal=pattern.causal, window=reach)


def beyond(pattern: Pattern) -> Others:
    """Return the part of a strided pattern from the stride on, counted in steps of the stride.

    If causal it has about T² / (2 stride) pairs: with a stride of √T, as few as the neighborhood. A distance of n steps
    is n · stride positions, so a window reaches ⌈window / stride⌉ steps. Step 0 is the query itself, which the
    neighborhood has already counted: it must not be weighed twice.
    """
    assert pattern.stride is not None
    reach = None if pattern.window is None else -(-pattern.window // pattern.stride)
    return Others(causal=pattern.causal, window=reach)


def by_remainder(x: Array, stride: int) -> Array:
    """Sort the positions of (..., H, T, C) by remainder, filled up with zeros: (..., stride, H, T / stride, C)."""
    xp = namespace(x)
    steps = -(-x.shape[-2] // stride)
    x = xp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, steps * stride - x.shape[-2]), (0, 0)])
    x = x.reshape(*x.shape[:-2], steps, stride, x.shape[-1])  # position = step · stride + remainder
    return xp.moveaxis(x, -2, _remainder_axis(x))


def by_position(x: Array, length: int) -> Array:
    """Undo `by_remainder`: (..., H, T, C) with T = `length`."""
    xp = namespace(x)
    x = xp.moveaxis(x, _remainder_axis(x), -2)
    return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])[..., :length, :]


def _remainder_axis(x: Array) -> int:
    """Return where the remainders stand: before the heads, if there are heads."""
    return -4 if x.ndim > 3 else -3


def keys_by_remainder(mask: Array | None, length: int, stride: int, *, axes: int) -> Array | None:
    """Sort a mask of whole keys, with as many axes as the queries, and hide the zeros that `by_remainder` adds."""
    if mask is None and length % stride == 0:
        return None
    mask = np.ones(length, dtype=bool) if mask is None else mask
    xp = namespace(mask)
    mask = xp.broadcast_to(mask, (*mask.shape[:-1], length))  # a mask may be about all keys at once
    mask = mask.reshape(*(1,) * (axes - mask.ndim), *mask.shape)
    return xp.matrix_transpose(by_remainder(xp.matrix_transpose(mask), stride))


def merged(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Join the values y (..., T, C) and log-sums (..., T, 1) of softmax over different keys.

        log_sum = log Σ exp(log_sum of a part)      y = Σ y of a part · exp(log_sum of the part − log_sum)

    Each y was divided by the sum over its own keys; exp(log_sum of the part − log_sum) is that sum as a share of the
    joint one, and puts right what was divided by too little. A part that sees nothing has log_sum = +inf, as does the
    result if all parts do.
    """
    (y1, sum1), (y2, sum2) = parts
    xp = namespace(y1)
    # Of a part without keys the sum is zero and its logarithm −inf: here it has to count as nothing.
    sum1, sum2 = (xp.where(s.real == xp.inf, -xp.inf, s) for s in (sum1, sum2))
    # As in softmax: relative to the larger one, neither exponential can overflow.
    largest = xp.where(sum1.real > sum2.real, sum1, sum2)
    shift = xp.where(xp.isfinite(largest), largest, 0)
    total = xp.exp(sum1 - shift) + xp.exp(sum2 - shift)
    empty = total == 0
    log_sum = xp.where(empty, xp.inf, shift + xp.log(xp.where(empty, 1, total)))
    return y1 * xp.exp(sum1 - log_sum) + y2 * xp.exp(sum2 - log_sum), log_sum
