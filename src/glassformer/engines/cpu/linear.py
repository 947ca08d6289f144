"""Matrix products: one for all rows, by BLAS; for a few rows, at the speed at which memory brings the matrix.

For a few rows, matrices lie as (outputs, inputs), so that each output is a run of memory, and may be in blocks (see
`quantized`). Several that read the same x are multiplied in one go: sharing a product out takes longer than some of
them. For many rows, blocks are turned into floats some rows at a time.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...core.quantized import BLOCK, GROUP, Quantized
from ...core.threads import cores
from ...ops.linear import LinearSaved
from .compile import REAL, compiled, inlined, is_plain, rows
from .cores import each, on_all_cores, pointer_to, share_out
from .parts import (
    ADD_ROWS,
    CODE,
    FOUR_AT_ONCE,
    MULTIPLY,
    PADDED,
    ROWS,
    AddRowsJob,
    MultiplyJob,
    are_unpacked,
    bytes_of_four,
    count_parts,
)  # fmt: skip
from .products import LARGE as LARGE_PRODUCT
from .products import gemm, gemm_address, multiply_into
from .quantized_rows import CODES, F16, F32, PLANES, Q8_0, split, unpack

LARGE = 1 << 16  # numbers in a matrix that a few rows are better multiplied by on all cores
WIDE = 4096  # columns of dy, as of a head, with which it is worth looking for rows of zeros: they need no products
PART = 256  # rows of blocks that are turned into floats at a time, and multiplied while they are in a core's cache
MOST_ROWS = 64  # of x: with more, turning blocks into floats and a matrix product are faster ...
MOST_ROWS_OF = {F32: 32 if FOUR_AT_ONCE else 3, F16: 16}  # ... or with more than these, for matrices stored so
MOST_SUMS = 16  # parts into which the rows of a matrix are cut, each with sums of its own ...
SUMMED = 1 << 18  # ... of at least this many bytes: the order of additions must not depend on the number of cores


@replaces(ops.linear)
def linear(x: Array, w: Array, b: Array | None = None) -> Any:
    if not _fits(x, w, b) or x.shape[-1] != w.shape[0]:
        return NotImplemented
    few = multiply_few(rows(x), w) if w.size >= LARGE and x.dtype == np.float32 else NotImplemented
    if few is NotImplemented:
        y = np.empty((*x.shape[:-1], w.shape[1]), x.dtype)
        if address := _address_for_small(x, w, b):
            _affine(address, rows(x), w, b, rows(y))
            return y, LinearSaved(x, w, b)
        multiply_into(rows(x), w, rows(y))
    else:
        y = few.reshape(*x.shape[:-1], w.shape[1])
    if b is not None:
        y += b
    return y, LinearSaved(x, w, b)


@replaces(ops.linear_backward)
def linear_backward(dy: Array, saved: LinearSaved, *, frozen: bool = False) -> Any:
    x, w, b = saved
    if not _fits(x, w, b) or not _fits(dy, w, b) or (*x.shape, dy.shape[-1]) != (*dy.shape[:-1], *w.shape):
        return NotImplemented
    dx, dw, flat, dout = np.empty(x.shape, x.dtype), None, rows(x), rows(dy)
    if not frozen and dy.flags.c_contiguous and (address := _address_for_small(x, w, b)):
        dw, db = np.empty(w.shape, w.dtype), None if b is None else np.zeros(b.shape, b.dtype)
        _affine_backward(address, dout, flat, w, rows(dx), dw, db)
        return dx, dw, db
    asked = _rows_with_numbers(dout) if dout.shape[1] >= WIDE and dout.flags.c_contiguous else None
    if asked is None or len(asked) > len(dout) // 2:
        multiply_into(dout, w.T, rows(dx))
    else:
        flat, dout = flat[asked], dout[asked]
        products = np.empty(flat.shape, x.dtype)
        multiply_into(dout, w.T, products)
        dx.fill(0)
        rows(dx)[asked] = products
    if not frozen:
        dw = np.empty_like(w)  # in the order of w: that of a tied head is the embedding's table, turned over
        if dw.flags.c_contiguous:
            multiply_into(flat.T, dout, dw)
        else:
            multiply_into(dout.T, flat, dw.T)
    return dx, dw, None if b is None else dout.sum(axis=0)


def _address_for_small(x: Array, w: Array, b: Array | None) -> int:
    """Return the address of the product where one call into a loop makes all of an affine map; 0 where none does."""
    if not 0 < 2 * x.size * w.shape[1] < LARGE_PRODUCT or not (x.flags.c_contiguous and w.flags.c_contiguous):
        return 0
    return gemm_address(x.dtype) if b is None or b.flags.c_contiguous else 0


@compiled
def _affine(address, x, w, b, y):
    """Turn y into x w + b."""
    (N, I), O, none = x.shape, w.shape[1], x.dtype.type(0)
    gemm(address, False, False, N, O, I, x.ctypes.data, I, w.ctypes.data, O, none, y.ctypes.data, O)
    if b is not None:
        for n in range(N):
            for o in range(O):
                y[n, o] += b[o]


@compiled
def _affine_backward(address, dy, x, w, dx, dw, db):
    """Turn dx into dy wᵀ and dw into xᵀ dy; add the rows of dy to db."""
    (N, I), O, none = x.shape, w.shape[1], x.dtype.type(0)
    gemm(address, False, True, N, I, O, dy.ctypes.data, O, w.ctypes.data, O, none, dx.ctypes.data, I)
    gemm(address, True, False, I, O, N, x.ctypes.data, I, dy.ctypes.data, O, none, dw.ctypes.data, O)
    if db is not None:
        for n in range(N):
            for o in range(O):
                db[o] += dy[n, o]


@compiled
def _rows_with_numbers(x):
    """Return which rows of x are not all zeros: of a head, those of tokens that count in the loss."""
    numbers, count = np.empty(len(x), np.int64), 0
    for n in range(len(x)):
        for value in x[n]:
            if value != 0:
                numbers[count] = n
                count += 1
                break
    return numbers[:count]


def _fits(x: Array, w: Array, b: Array | None) -> bool:
    """Return whether all are NumPy's own arrays of one real type, w a matrix and b a vector for it."""
    if not type(x) is type(w) is np.ndarray or x.ndim < 1 or w.ndim != 2:
        return False
    if b is not None and (type(b) is not np.ndarray or b.dtype != x.dtype or b.shape != w.shape[1:]):
        return False
    return x.dtype in REAL and w.dtype == x.dtype


@replaces(ops.quantized_product)
def quantized_product(x: Array, w: Quantized) -> Any:
    if type(w) is not Quantized or not w.turned or not is_plain(x) or x.dtype != np.float32:
        return NotImplemented
    if x.ndim < 1 or x.shape[-1] != w.shape[0]:
        return NotImplemented
    flat = rows(x)
    y = multiply_few(flat, w)
    if y is NotImplemented:
        y = np.empty((len(flat), w.rows), np.float32)
        workers = cores()

        def multiply_from(first: int) -> None:
            for start in range(first * PART, w.rows, workers * PART):
                part = _floats(w, start, min(start + PART, w.rows))
                multiply_into(flat, part.T, y[:, start : start + PART])

        each([partial(multiply_from, first) for first in range(workers)])
    return y.reshape(*x.shape[:-1], w.rows)


def _floats(w: Quantized, start: int, stop: int) -> Array:
    """Return rows of blocks as float32; `start` is a multiple of those that lie side by side."""
    if w.form == "F16":
        return w.blocks[start:stop].view(np.float16).astype(np.float32)
    count, size = w.blocks.shape[1:]
    table = np.empty((-(-(stop - start) // GROUP) * GROUP, BLOCK * count), np.float32)
    unpack(CODES[w.form], w.address + start // GROUP * count * size, count, table)
    return table[: stop - start, : w.columns]


# --- a few rows ------------------------------------------------------------------------------------------------------


def described(w: Any) -> tuple[int, int, int, int] | None:
    """Describe a weight (inputs, outputs) to `multiply` by the four numbers of `parts`; None if it cannot read it."""
    if type(w) is Quantized:
        # All rows of the last four that lie side by side are written.
        padded = w.rows if w.form == "F16" else -(-w.rows // GROUP) * GROUP
        return (CODES[w.form], w.address, w.rows, padded) if w.turned else None
    if type(w) is np.ndarray and w.dtype == np.float32 and w.ndim == 2 and w.flags.f_contiguous:
        return (F32, w.__array_interface__["data"][0], w.shape[1], w.shape[1])
    return None


def multiply_few(x: Array, w: Any) -> Any:
    """Return x w for a few rows x (N, I); NotImplemented where no kernel reads such a matrix."""
    if x.dtype != np.float32 or not 0 < len(x) <= MOST_ROWS or x.shape[1] != w.shape[0]:
        return NotImplemented
    matrix = described(w)
    if matrix is not None and len(x) <= MOST_ROWS_OF.get(matrix[CODE], MOST_ROWS):
        y = np.empty((len(x), matrix[PADDED]), np.float32)
        x = np.ascontiguousarray(x)
        size = len(x) * w.nbytes
        on_all_cores(multiply, x, np.array([matrix]), y.reshape(-1), workspace(*x.shape), size=size)
        return y[:, : matrix[ROWS]]
    if len(x) > 1 or type(w) is not np.ndarray or w.dtype != np.float32 or not w.flags.c_contiguous:
        return NotImplemented
    sums = np.empty((max(1, min(MOST_SUMS, w.nbytes // SUMMED)), w.shape[1]), np.float32)
    on_all_cores(add_rows, np.ascontiguousarray(x[0]), w, sums, size=w.nbytes)
    return sums.sum(axis=0, keepdims=True)


class Workspace(NamedTuple):
    """Memory that `multiply` needs for rows x (N, I): x in planes, their scales and sums, x enlarged for float16."""

    planes: Array
    scales: Array
    sums: Array
    enlarged: Array


@inlined
def workspace(N, I):
    count = (I + BLOCK - 1) // BLOCK
    planes, floats = np.empty((N, count, PLANES // BLOCK, BLOCK), np.int8), np.float32
    return Workspace(planes, np.empty((N, count), floats), np.empty((N, count), floats), np.empty((N, I), floats))


@compiled
def multiply(x, matrices, y, work, queue):
    """Write x w, for a few rows x (N, I) and each of several matrices, one result behind the other into y."""
    N, I = x.shape
    groups, size, in_blocks, in_halves = 0, 0, False, False
    for m in range(len(matrices)):
        fours = (matrices[m, ROWS] + 3) // 4
        groups += fours
        size += fours * bytes_of_four(matrices[m, CODE], I)
        in_blocks |= matrices[m, CODE] >= Q8_0 and not are_unpacked(N, I)
        in_halves |= matrices[m, CODE] == F16
    for n in range(N):
        if in_blocks:
            split(x[n], work.planes[n], work.scales[n], work.sums[n])
        if in_halves:
            for i in range(I):
                work.enlarged[n, i] = x[n, i] * np.float32(2.0**84)
    parts = min(groups, count_parts(N * size))
    # Addresses of arguments only: what is made here would be released after its last mention by name.
    job = MultiplyJob(
        x=pointer_to(x), enlarged=pointer_to(work.enlarged), planes=pointer_to(work.planes),
        scales=pointer_to(work.scales), sums=pointer_to(work.sums), y=pointer_to(y), N=N, I=I,
        matrices=pointer_to(matrices), matrix_count=len(matrices), groups=groups, parts=parts,
    )  # fmt: skip
    share_out(queue, MULTIPLY, job, parts)


@compiled
def add_rows(x, w, sums, queue):
    """Write x w for one row x (I,) and a matrix as (inputs, outputs) into sums (parts, O), to be added up."""
    parts = len(sums)
    job = AddRowsJob(pointer_to(x), pointer_to(w), pointer_to(sums), I=w.shape[0], O=w.shape[1], parts=parts)
    share_out(queue, ADD_ROWS, job, parts)
