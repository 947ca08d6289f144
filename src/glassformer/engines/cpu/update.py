"""Optimizer updates and sums: every number is read once and written once, all arrays of a model in one call.

A step must not cost more because a model has many small arrays. A kernel for all arrays, in float32 alone, gets their
addresses as objects; the caller keeps the arrays alive.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numba import carray

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...core.threads import cores
from .compile import are_arrays, compiled, inlined, is_plain
from .cores import each
from .simd import floats_pointer, integers_pointer

MANY = 200_000  # numbers: fewer are updated by one core

_FLOAT = np.dtype(np.float32)
FIELDS = object.__basicsize__
"""Bytes of an object before its own fields. NumPy's C API says what those of an array are: where its numbers are, how
many axes it has, and where their lengths are, each in eight bytes."""


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
    # Short sums in the type of x, added up in float64: millions of small terms must not vanish beside their sum.
    total = 0.0
    for start in range(0, x.size, 4096):
        part = x[start : start + 4096]
        square = x.dtype.type(0)
        for i in range(part.size):
            square += part[i] * part[i]
        total += square
    return total


# --- all arrays ------------------------------------------------------------------------------------------------------


def adam_on_all(
    ps: list[Array], means: list[Array], squares: list[Array], decays: list[bool],
    *, beta1: float, beta2: float, eps: float,
) -> Callable[..., bool] | None:  # fmt: skip
    """Return a function that takes a step of Adam on all arrays in place, given their gradients; None if it cannot.

    It answers False if the gradients do not fit. `penalty` and `shrink` apply to the arrays that `decays` marks.
    """
    shapes = [np.shape(p) for p in ps]
    if not all(is_like(arrays, shapes) and all(x.flags.writeable for x in arrays) for arrays in (ps, means, squares)):
        return None
    tables = [*(addresses(arrays) for arrays in (ps, means, squares)), np.array(decays)]
    shares = [(part, [table[part] for table in tables]) for part in shared(ps)]

    def step(gs: list[Array], *, rate: float, root: float, penalty: float = 0.0, shrink: float = 1.0) -> bool:
        if not is_like(gs, shapes):
            return False
        gradients = addresses(gs)
        numbers = (float(penalty), float(shrink)), (rate, root, beta1, beta2, eps)
        if len(shares) == 1:
            _adam_on_all(gradients, *tables, *numbers)
        else:
            each([partial(_adam_on_all, gradients[part], *share, *numbers) for part, share in shares])
        return True

    step.keep = ps, means, squares  # type: ignore[attr-defined]
    return step


def add_to_all(totals: list[Array], others: list[Array], keep: float, share: float) -> bool:
    """Turn every total into keep · total + share · other, in place; False, having done nothing, if it cannot."""
    shapes = [np.shape(x) for x in totals]
    if not is_like(totals, shapes) or not is_like(others, shapes) or not all(x.flags.writeable for x in totals):
        return False
    left, right = addresses(totals), addresses(others)
    each([partial(_add_to_all, left[part], right[part], keep, share) for part in shared(totals)])
    return True


@replaces(ops.sum_of_squares)
def sum_of_squares(*arrays: Array) -> Any:
    if not arrays or not is_plain(*arrays):
        return NotImplemented
    if arrays[0].dtype == _FLOAT:
        return np.float32(_square_sum_of_all(addresses(arrays)))
    squares = [x.dtype.type(square_sum(x.reshape(-1))) for x in arrays]
    return sum(squares[1:], squares[0])


def is_like(arrays: Sequence[Array], shapes: list[tuple[int, ...]]) -> bool:
    """Return whether all are NumPy's own arrays of float32 in C order, one of each shape."""
    return 0 < len(arrays) == len(shapes) and are_arrays(arrays, _FLOAT, shapes)


def addresses(arrays: Sequence[Array]) -> Array:
    """Return where each array is as an object: to ask NumPy where its numbers are takes forty times as long."""
    return np.array([*map(id, arrays)])


def shared(arrays: Sequence[Array]) -> list[slice]:
    """Cut a list of arrays where it has about the same number of numbers for every core, if there are many."""
    sizes = np.array([x.size for x in arrays])
    parts = cores() if sizes.sum() >= MANY else 1
    if parts == 1:
        return [slice(None)]
    ends = np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, parts) / parts) + 1
    cuts = [0, *ends.tolist(), len(sizes)]
    return [slice(start, stop) for start, stop in pairwise(cuts) if start < stop]


@inlined
def _numbers(array):
    """View all numbers of an array as a single row, given its address."""
    fields = carray(integers_pointer(array + FIELDS), (3,))
    axes = fields[1] & 0xFFFFFFFF  # the other half of these eight bytes is unused
    size = 1
    for length in carray(integers_pointer(fields[2]), (axes,)):
        size *= length
    return carray(floats_pointer(fields[0]), (size,))


@compiled
def _adam_on_all(gs, ps, means, squares, decays, decay, settings):
    for j in range(ps.size):
        arrays = _numbers(ps[j]), _numbers(gs[j]), _numbers(means[j]), _numbers(squares[j])
        adam(arrays, decay if decays[j] else (0.0, 1.0), settings)


@compiled
def _add_to_all(totals, others, keep, share):
    for j in range(totals.size):
        add_weighted_numbers(_numbers(totals[j]), _numbers(others[j]), keep, share)


@compiled
def _square_sum_of_all(arrays):
    total = np.float32(0)
    for j in range(arrays.size):
        total += np.float32(square_sum(_numbers(arrays[j])))
    return total
