"""Parts of a large product, or of attention to many keys, that any core may do.

A job is a tuple of whole numbers which says everything about its parts; arrays are given by their addresses. It is
written into memory by `cores.share_out`, and `do_part` does one of its parts.
"""

import platform
from typing import NamedTuple

import numpy as np
from numba import carray
from numba.np.unsafe.ndarray import to_fixed_tuple

from ...core.quantized import BLOCK, GROUP
from . import simd
from .compile import bits_to_float, compiled, inlined
from .quantized_rows import F16, F32, PLANES, Q4_0, Q4_1, Q8_0, four_4bit, four_8bit, size_of, unpack_four
from .rowwise import exponentials

MULTIPLY, ADD_ROWS, MIX = range(3)
SIZE = 1 << 15  # bytes that a part reads, about: few, so that the last is not waited for long ...
LARGE, ENOUGH = 1 << 18, 16  # ... and more where there are many parts: long runs of memory are read faster
FOUR_AT_ONCE = platform.machine().lower() in ("x86_64", "amd64")  # memory brings several runs at once sooner
UNPACKED = 4 if FOUR_AT_ONCE else 1 << 30  # rows of x from which on blocks are better turned into floats first

CODE, ADDRESS, ROWS, PADDED = range(4)
"""The description of a matrix: how its numbers are stored, where it lies, its outputs, and those written."""


class MultiplyJob(NamedTuple):
    """A few rows times matrices."""

    x: int  # (N, I)
    enlarged: int  # x enlarged for float16
    planes: int
    scales: int
    sums: int
    y: int
    N: int
    I: int
    matrices: int  # (matrix_count, 4), as `linear.described` says
    matrix_count: int
    groups: int  # how many fours of outputs
    parts: int


class AddRowsJob(NamedTuple):
    """One row times a matrix as (inputs, outputs)."""

    x: int  # (I,)
    w: int  # (I, O)
    sums: int  # (parts, O)
    I: int
    O: int
    parts: int


class MixJob(NamedTuple):
    """A query for each head, and all keys there are."""

    queries: int
    mixed: int
    keys: int
    values: int
    head_bytes: int  # from the keys of one head to those of the next
    served: int  # query heads that share one key head
    H: int
    C: int
    key_count: int
    scale: int  # the bits of the factor on scores
    N: int
    row: int  # numbers from one row of queries to the next
    mask: int  # (N, keys), or 0
    parts: int


LENGTH = max(len(job._fields) for job in (MultiplyJob, AddRowsJob, MixJob))
# Numba takes names that are bound to numbers, not expressions.
_MULTIPLY_LENGTH, _ADD_ROWS_LENGTH, _MIX_LENGTH = len(MultiplyJob._fields), len(AddRowsJob._fields), len(MixJob._fields)


@inlined
def count_parts(size):
    """Return the number of parts for a job that reads `size` bytes."""
    return max(1, min(size // SIZE, max(ENOUGH, size // LARGE)))


@compiled
def do_part(at, part):
    """Do one part of the job at an address; before it stands which kind it is of."""
    kind, numbers = carray(simd.integers_pointer(at - 8), (1,))[0], carray(simd.integers_pointer(at), (LENGTH,))
    if kind == MULTIPLY:
        _multiply_part(MultiplyJob(*to_fixed_tuple(numbers, _MULTIPLY_LENGTH)), part)
    elif kind == ADD_ROWS:
        _add_rows_part(AddRowsJob(*to_fixed_tuple(numbers, _ADD_ROWS_LENGTH)), part)
    else:
        _mix_part(MixJob(*to_fixed_tuple(numbers, _MIX_LENGTH)), part)


# --- a few rows times matrices ---------------------------------------------------------------------------------------


@compiled
def _multiply_part(job, part):
    N, I, groups, parts = job.N, job.I, job.groups, job.parts
    matrices = carray(simd.integers_pointer(job.matrices), (job.matrix_count, 4))
    unpacks = are_unpacked(N, I)
    blocks = (I + BLOCK - 1) // BLOCK
    scratch = np.empty(GROUP * BLOCK * blocks + 16 if unpacks else 0, np.float32)
    floats = (np.intp(scratch.ctypes.data) + 63) & -64
    for g in range(part * groups // parts, (part + 1) * groups // parts):
        m, group, start = 0, g, 0
        while group >= (matrices[m, ROWS] + 3) // 4:
            group -= (matrices[m, ROWS] + 3) // 4
            start += N * matrices[m, PADDED]
            m += 1
        # Four outputs of a matrix, fewer at its end, for all rows of x.
        code, w, rows, row = matrices[m, CODE], matrices[m, ADDRESS], matrices[m, PADDED], 4 * group
        some = min(4, rows - row)
        if code == F32:
            _float_rows(w + 4 * row * I, 4 * I, some, job.x, 4 * I, N, I, job.y + 4 * (start + row), 4 * rows)
        elif code == F16:
            _half_rows(carray(simd.shorts_pointer(w + 2 * row * I), (some, I)), job, start + row, rows)
        else:
            w += group * blocks * size_of(code)
            if unpacks:
                unpack_four(code, w, blocks, floats, 4 * BLOCK * blocks)
                _float_rows(floats, 4 * BLOCK * blocks, GROUP, job.x, 4 * I, N, I, job.y + 4 * (start + row), 4 * rows)
            else:
                _block_rows(job, blocks, code, w, start + row, rows)
    scratch[:1] = 0  # until here it must live


@inlined
def are_unpacked(N, I):
    """Return whether blocks are turned into floats for N rows of I numbers."""
    return N >= UNPACKED and I % 16 == 0


@inlined
def bytes_of_four(code, I):
    if code == F32:
        return 16 * I
    return 8 * I if code == F16 else (I + BLOCK - 1) // BLOCK * size_of(code)


@compiled
def _float_rows(w, row, some, x, line, N, I, y, rows):
    """Write the products of `some` rows w, at most four, and N rows x; all but I and N are addresses or bytes."""
    n = 0
    if FOUR_AT_ONCE and some == 4 and I % 16 == 0:
        while n + 4 <= N:
            _dot_four_by_four(w, row, x + n * line, line, I, y + n * rows, rows)
            n += 4
        while n < N:
            simd.store(y + n * rows, _dot_four(w, row, x + n * line, I))
            n += 1
    while n < N:
        result = carray(simd.floats_pointer(y + n * rows), (some,))
        for r in range(some):
            result[r] = _dot_floats(w + r * row, x + n * line, I)
        n += 1


@compiled
def _dot_four_by_four(w, row, x, line, count, y, rows):
    """Write Σ w x of four rows w and four rows x; the same sums as `_dot_floats`."""
    none = (simd.no_sixteen(), simd.no_sixteen(), simd.no_sixteen(), simd.no_sixteen())
    first, second, third, fourth = none, none, none, none
    for _ in range(count // 16):
        first = _plus_products(first, w, row, x)
        second = _plus_products(second, w, row, x + line)
        third = _plus_products(third, w, row, x + 2 * line)
        fourth = _plus_products(fourth, w, row, x + 3 * line)
        w += 64
        x += 64
    simd.store(y, simd.totals(first[0], first[1], first[2], first[3]))
    simd.store(y + rows, simd.totals(second[0], second[1], second[2], second[3]))
    simd.store(y + 2 * rows, simd.totals(third[0], third[1], third[2], third[3]))
    simd.store(y + 3 * rows, simd.totals(fourth[0], fourth[1], fourth[2], fourth[3]))


@inlined
def _dot_four(w, row, x, count):
    """Return Σ w x for four rows w; the same sums as `_dot_floats`."""
    sums = (simd.no_sixteen(), simd.no_sixteen(), simd.no_sixteen(), simd.no_sixteen())
    for _ in range(count // 16):
        _prefetch_four(w + 2048, row)
        sums = _plus_products(sums, w, row, x)
        w += 64
        x += 64
    return simd.totals(sums[0], sums[1], sums[2], sums[3])


@inlined
def _plus_products(sums, w, row, x):
    """Add the products of 16 numbers x and those of four rows w."""
    factors = simd.sixteen_at(x)
    return (
        simd.plus_product(sums[0], simd.sixteen_at(w), factors),
        simd.plus_product(sums[1], simd.sixteen_at(w + row), factors),
        simd.plus_product(sums[2], simd.sixteen_at(w + 2 * row), factors),
        simd.plus_product(sums[3], simd.sixteen_at(w + 3 * row), factors),
    )


@inlined
def _prefetch_four(w, row):
    simd.prefetch(w)
    simd.prefetch(w + row)
    simd.prefetch(w + 2 * row)
    simd.prefetch(w + 3 * row)


@inlined
def _dot_floats(w, x, count):
    """Return Σ w x of two runs of memory, asking for what comes next in the first."""
    sums = simd.no_sixteen()
    for _ in range(count // 16):
        simd.prefetch(w + 1024)
        sums = simd.plus_product(sums, simd.sixteen_at(w), simd.sixteen_at(x))
        w += 64
        x += 64
    rest = count % 16
    last, factors = carray(simd.floats_pointer(w), (rest,)), carray(simd.floats_pointer(x), (rest,))
    y = simd.total(sums)
    for i in range(rest):
        y += last[i] * factors[i]
    return y


@inlined
def _half_rows(w, job, start, rows):
    N, I = job.N, job.I
    # The factor 2⁻¹¹² of the bits is made up for in two steps, so that no product leaves the range of float32.
    x = carray(simd.floats_pointer(job.enlarged), (N, I))
    y = carray(simd.floats_pointer(job.y + 4 * start), (N * rows,))
    for n in range(N):
        for r in range(len(w)):
            sums = np.float32(0)
            for i in range(I):
                sums += simd.half_bits(w[r, i]) * x[n, i]
            y[n * rows + r] = sums * np.float32(2.0**28)


@inlined
def _block_rows(job, count, code, w, start, rows):
    for n in range(job.N):
        x = job.planes + n * count * PLANES
        scales = carray(simd.floats_pointer(job.scales + 4 * n * count), (count,))
        if code == Q8_0:
            four = four_8bit(w, x, scales, count)
        else:
            totals = carray(simd.floats_pointer(job.sums + 4 * n * count), (count,))
            four = four_4bit(Q4_1 if code == Q4_1 else Q4_0, w, x, scales, totals, count)
        simd.store(job.y + 4 * (start + n * rows), four)


@compiled
def _add_rows_part(job, part):
    """Write the sum of some rows of w, each times its x, into one row of the sums."""
    I, O, parts = job.I, job.O, job.parts
    x, w = carray(simd.floats_pointer(job.x), (I,)), carray(simd.floats_pointer(job.w), (I, O))
    y = carray(simd.floats_pointer(job.sums + 4 * part * O), (O,))
    y[:] = 0
    for i in range(part * I // parts, (part + 1) * I // parts):
        row, factor = w[i], x[i]
        for o in range(O):
            y[o] += factor * row[o]


# --- a query for each head, and all keys there are -------------------------------------------------------------------


@compiled
def _mix_part(job, part):
    """Gather values for some heads, y = softmax(q kᵀ · scale) v."""
    H, C, count, scale, parts = job.H, job.C, job.key_count, bits_to_float(np.int32(job.scale)), job.parts
    heads, weights = job.N * H, np.empty(count, np.float32)
    for head in range(part * heads // parts, (part + 1) * heads // parts):
        row, shared = head // H, head // job.served * job.head_bytes
        mask = carray(simd.bytes_pointer(job.mask + row * count), (count if job.mask else 0,))
        _weigh(job.queries + 4 * (row * job.row + head % H * C), job.keys + shared, C, scale, mask, weights)
        _mix(weights, job.values + shared, C, job.mixed + 4 * head * C)


@compiled
def _weigh(q, k, C, scale, mask, weights):
    largest = np.float32(-np.inf)
    for s in range(weights.size):
        hidden = mask.size and mask[s] == 0
        weights[s] = np.float32(-np.inf) if hidden else _dot_floats(k + 4 * s * C, q, C) * scale
        largest = max(largest, weights[s])
    total = exponentials(weights, largest)
    for s in range(weights.size):
        weights[s] /= total


@compiled
def _mix(weights, v, C, y):
    """Write Σ weights v, 16 channels at a time."""
    for first in range(0, 4 * (C - C % 16), 64):
        sums = simd.no_sixteen()
        for s in range(weights.size):
            sums = simd.plus_product(sums, simd.sixteen_at(v + 4 * s * C + first), simd.spread_sixteen(weights[s]))
        simd.store_sixteen(y + first, sums)
    values, mixed = carray(simd.floats_pointer(v), (weights.size, C)), carray(simd.floats_pointer(y), (C,))
    for channel in range(C - C % 16, C):
        mixed[channel] = 0
        for s in range(weights.size):
            mixed[channel] += weights[s] * values[s, channel]
