"""All arrays of a model in one call: a step must not cost more because a model has many small arrays.

A kernel gets the addresses of the arrays as objects; whoever passes addresses keeps the arrays alive. float32 alone.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numba import carray

from ... import ops
from ...arrays import Array
from ...dispatch import replaces
from .compile import compiled, inlined
from .cores import cores, each
from .layout import are_arrays, is_plain
from .update import adam, add_weighted_numbers, square_sum
from .vectorized_rows import floats_pointer, integers_pointer

MANY = 200_000
"""Fewer numbers than these are updated by one core."""

_FLOAT = np.dtype(np.float32)
_FIELDS = object.__basicsize__
"""Bytes of an object before its own fields. NumPy's C API says what those of an array are: where its numbers are, how
many axes it has, and where their lengths are, each in eight bytes."""


def adam_on_all(
    ps: list[Array], means: list[Array], squares: list[Array], decays: list[bool],
    *, beta1: float, beta2: float, eps: float,
) -> Callable[..., bool] | None:  # fmt: skip
    """Return a function that takes a step of Adam on all arrays in place, given their gradients; None if it cannot.

    It answers False, having done nothing, if the gradients do not fit the arrays. `penalty` and `shrink`
    apply to the arrays that `decays` marks.
    """
    if not are_plain(ps):
        return None
    shapes = [p.shape for p in ps]
    if not all(is_like(arrays, shapes) and all(x.flags.writeable for x in arrays) for arrays in (ps, means, squares)):
        return None
    tables = [*(addresses(arrays) for arrays in (ps, means, squares)), np.array(decays)]
    shares = [(part, [table[part] for table in tables]) for part in shared(ps)]

    def step(gs: list[Array], *, rate: float, root: float, penalty: float = 0.0, shrink: float = 1.0) -> bool:
        if not is_like(gs, shapes):
            return False
        found = addresses(gs)
        numbers = (float(penalty), float(shrink)), (rate, root, beta1, beta2, eps)
        if len(shares) == 1:
            _adam_on_all(found, *tables, *numbers)
        else:
            each([partial(_adam_on_all, found[part], *own, *numbers) for part, own in shares])
        return True

    step.keep = ps, means, squares  # type: ignore[attr-defined]
    return step


def add_to_all(totals: list[Array], others: list[Array], keep: float, share: float) -> bool:
    """Turn every total into keep · total + share · other, in place; False, having done nothing, if it cannot."""
    if not are_plain(totals):
        return False
    shapes = [x.shape for x in totals]
    if not is_like(others, shapes) or not all(x.flags.writeable for x in totals):
        return False
    left, right = addresses(totals), addresses(others)
    each([partial(_add_to_all, left[part], right[part], keep, share) for part in shared(totals)])
    return True


@replaces(ops.sum_of_squares)
def sum_of_squares(*arrays: Array) -> Any:
    if are_plain(arrays):
        return np.float32(_square_sum_of_all(addresses(arrays)))
    if not arrays or not is_plain(*arrays):
        return NotImplemented
    squares = [x.dtype.type(square_sum(x.reshape(-1))) for x in arrays]
    return sum(squares[1:], squares[0])


def are_plain(arrays: Sequence[Array]) -> bool:
    """Tell whether all are NumPy's own arrays of float32 in C order."""
    return bool(arrays) and is_plain(*arrays) and arrays[0].dtype == np.float32


def is_like(arrays: Sequence[Array], shapes: list[tuple[int, ...]]) -> bool:
    """Tell whether all are NumPy's own arrays of float32 in C order, each of its shape, as many as there are shapes."""
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
    fields = carray(integers_pointer(array + _FIELDS), (3,))
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
