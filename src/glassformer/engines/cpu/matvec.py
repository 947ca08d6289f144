"""A few rows times matrices that are read but once: at the speed at which memory brings them.

Matrices lie as (outputs, inputs), so that each output is a run of memory. Several that read the same x are multiplied
in one go: sharing a product out takes longer than some of them.
"""

from typing import Any, NamedTuple

import numpy as np

from ...arrays import Array
from ...quantized import BLOCK, GROUP, Quantized
from .compile import compiled, inlined
from .parts import ADD_ROWS, CODE, MULTIPLY, ROOM, ROWS, bytes_of_four, count_parts
from .quantized_rows import CODES, F16, F32, Q8_0, split
from .thread_pool import JOB, KIND, on_all_cores, place, share_out

MOST_ROWS = 64
"""Above so many rows of x, turning blocks into floats and a matrix product are faster ..."""
MOST_ROWS_OF = {F32: 3, F16: 16}
"""... or above so many, for matrices stored so."""
MOST_SUMS = 16
"""Into so many parts the rows of a matrix are cut at most, each with sums of its own ..."""
SUMMED = 1 << 18
"""... and so many bytes at least make one: the number of cores has no say in how numbers are added up."""


def described(w: Any) -> tuple[int, int, int, int] | None:
    """Describe a weight (inputs, outputs) to `multiply`: see CODE and its neighbors in `parts`.

    None for what `multiply` cannot read.
    """
    if type(w) is Quantized:
        return (CODES[w.form], w.address, w.rows, room(w)) if w.turned else None
    if type(w) is np.ndarray and w.dtype == np.float32 and w.ndim == 2 and w.flags.f_contiguous:
        return (F32, w.__array_interface__["data"][0], w.shape[1], w.shape[1])
    return None


def room(w: Any) -> int:
    """Return how many outputs `multiply` writes: all rows of the last four that lie side by side."""
    outputs = w.shape[1]
    return -(-outputs // GROUP) * GROUP if type(w) is Quantized and w.form != "F16" else outputs


def multiply_few(x: Array, w: Any) -> Any:
    """Return x w for a few rows x (N, I); NotImplemented where no kernel reads such a matrix."""
    if x.dtype != np.float32 or not 0 < len(x) <= MOST_ROWS or x.shape[1] != w.shape[0]:
        return NotImplemented
    found = described(w)
    if found is not None and len(x) <= MOST_ROWS_OF.get(found[CODE], MOST_ROWS):
        y = np.empty((len(x), found[ROOM]), np.float32)
        x = np.ascontiguousarray(x)
        size = len(x) * w.nbytes
        on_all_cores(multiply, x, np.array([found]), y.reshape(-1), workspace(*x.shape), size=size)
        return y[:, : found[ROWS]]
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
    """Return memory for products with N rows of I numbers."""
    count = (I + BLOCK - 1) // BLOCK
    planes, floats = np.empty((N, count, 3, BLOCK), np.int8), np.float32
    return Workspace(planes, np.empty((N, count), floats), np.empty((N, count), floats), np.empty((N, I), floats))


@compiled
def multiply(x, matrices, y, work, board):
    """Write x w, for a few rows x (N, I) and each of several matrices, one result behind the other into y."""
    N, I = x.shape
    groups, size, in_blocks, in_halves = 0, 0, False, False
    for m in range(len(matrices)):
        own = (matrices[m, ROWS] + 3) // 4
        groups += own
        size += own * bytes_of_four(matrices[m, CODE], I)
        in_blocks |= matrices[m, CODE] >= Q8_0
        in_halves |= matrices[m, CODE] == F16
    for n in range(N):
        if in_blocks:
            split(x[n], work.planes[n], work.scales[n], work.sums[n])
        if in_halves:
            for i in range(I):
                work.enlarged[n, i] = x[n, i] * np.float32(2.0**84)
    parts = min(groups, count_parts(N * size))
    job = board[JOB:]
    # Addresses of arguments only: what is made here would be released after its last mention by name.
    job[0], job[1], job[2] = place(x), place(work.enlarged), place(work.planes)
    job[3], job[4], job[5] = place(work.scales), place(work.sums), place(y)
    job[6], job[7], job[8], job[9], job[10], job[11] = N, I, place(matrices), len(matrices), groups, parts
    board[KIND] = MULTIPLY
    share_out(board, parts)


@compiled
def add_rows(x, w, sums, board):
    """Write x w for one row x (I,) and a matrix as (inputs, outputs) into sums (parts, O), to be added up."""
    job = board[JOB:]
    job[0], job[1], job[2] = place(x), place(w), place(sums)
    job[3], job[4], job[5] = w.shape[0], w.shape[1], len(sums)
    board[KIND] = ADD_ROWS
    share_out(board, len(sums))
