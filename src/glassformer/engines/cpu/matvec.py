"""A few rows times matrices that are read but once: at the speed at which memory brings them.

Matrices lie as (outputs, inputs), so that each output is a run of memory. Several that read the same x are multiplied
in one go: starting all cores takes longer than some of these products.
"""

import threading
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import carray, prange

from ...arrays import Array
from ...quantized import BLOCK, GROUP, Quantized
from .compile import compiled, compiled_parallel, inlined
from .cores import cores
from .lanes import floats_at, floats_pointer, half_bits, no_floats, plus_product, prefetch, shorts_pointer, store, total
from .quantized_rows import CODES, F16, F32, PLANES, Q4_0, Q8_0, four_4bit, four_4bit_shifted, four_8bit, size_of, split

MOST_ROWS = 64
"""Above so many rows of x, turning blocks into floats and a matrix product are faster ..."""
MOST_ROWS_OF = {F32: 3, F16: 16}
"""... or above so many, for matrices stored so."""

CODE, ADDRESS, ROWS, ROOM = range(4)
"""What `described` says of a matrix: how its numbers are stored, where it lies, its outputs, and those written."""


def described(w: Any) -> tuple[int, int, int, int] | None:
    """Describe a weight (inputs, outputs) to `multiply`: see CODE and its neighbors.

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
        on_all_cores(multiply, x, np.array([found]), y.reshape(-1), workspace(*x.shape), cores())
        return y[:, : found[ROWS]]
    if len(x) > 1 or type(w) is not np.ndarray or w.dtype != np.float32 or not w.flags.c_contiguous:
        return NotImplemented
    sums = np.empty((cores(), w.shape[1]), np.float32)
    on_all_cores(add_rows, np.ascontiguousarray(x[0]), w, sums)
    return sums.sum(axis=0, keepdims=True)


def on_all_cores(kernel: Any, *arguments: Any) -> None:
    """Run a parallel kernel on as many cores as may be used here."""
    number = cores()
    if getattr(_here, "cores", None) != number:
        numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))
        _here.cores = number
    with _turn:
        kernel(*arguments)


_here = threading.local()  # Numba keeps the number of its threads for each thread of ours
_turn = threading.Lock()  # the simplest of Numba's thread pools ends the process when two threads use it at once


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


@compiled_parallel
def multiply(x, matrices, y, work, chunks):
    """Write x w, for a few rows x (N, I) and each of several matrices, one result behind the other into y."""
    N, I = x.shape
    groups, in_blocks, in_halves = 0, False, False
    for m in range(len(matrices)):
        groups += (matrices[m, ROWS] + 3) // 4
        in_blocks |= matrices[m, CODE] >= Q8_0
        in_halves |= matrices[m, CODE] == F16
    for n in range(N):
        if in_blocks:
            split(x[n], work.planes[n], work.scales[n], work.sums[n])
        if in_halves:
            for i in range(I):
                work.enlarged[n, i] = x[n, i] * np.float32(2.0**84)
    # Numba counts who uses an array, and cores that count the same one wait for each other; addresses are not counted.
    # They are of arguments only: what is made here would be released after its last mention by name.
    planes, scales, sums = _place(work.planes), _place(work.scales), _place(work.sums)
    at = (_place(x), _place(work.enlarged), planes, scales, sums, _place(y))
    for c in prange(chunks):
        for g in range(c * groups // chunks, (c + 1) * groups // chunks):
            m, group, start = 0, g, 0
            while group >= (matrices[m, ROWS] + 3) // 4:
                group -= (matrices[m, ROWS] + 3) // 4
                start += N * matrices[m, ROOM]
                m += 1
            _four_outputs(at, N, I, matrices[m, CODE], matrices[m, ADDRESS], matrices[m, ROOM], group, start)


@inlined
def _place(array):
    """Return the address of an array, as a signed number: with an unsigned one, sums would become floating-point."""
    return np.intp(array.ctypes.data)


@compiled
def _four_outputs(at, N, I, code, w, rows, group, start):
    """Compute four outputs of a matrix, fewer at its end, for all rows of x."""
    row = 4 * group
    some = min(4, rows - row)
    if code == F32:
        _float_rows(w + 4 * row * I, at, N, I, some, start + row, rows)
    elif code == F16:
        _half_rows(carray(shorts_pointer(w + 2 * row * I), (some, I)), at, N, I, start + row, rows)
    else:
        _block_rows(at, N, (I + BLOCK - 1) // BLOCK, code, w, group, start + row, rows)


@inlined
def _float_rows(w, at, N, I, some, place, rows):
    y = carray(floats_pointer(at[5] + 4 * place), (N * rows,))
    for n in range(N):
        for r in range(some):
            y[n * rows + r] = dot_floats(w + 4 * r * I, at[0] + 4 * n * I, I)


@inlined
def dot_floats(w, x, count):
    """Return Σ w x of two runs of memory, asking for what comes next in the first."""
    a, b, c, d = no_floats(), no_floats(), no_floats(), no_floats()
    for _ in range(count // 16):
        prefetch(w + 1024)
        a = plus_product(a, floats_at(w), floats_at(x))
        b = plus_product(b, floats_at(w + 16), floats_at(x + 16))
        c = plus_product(c, floats_at(w + 32), floats_at(x + 32))
        d = plus_product(d, floats_at(w + 48), floats_at(x + 48))
        w += 64
        x += 64
    rest = count % 16
    last, factors = carray(floats_pointer(w), (rest,)), carray(floats_pointer(x), (rest,))
    y = total(a, b, c, d)
    for i in range(rest):
        y += last[i] * factors[i]
    return y


@inlined
def _half_rows(w, at, N, I, place, rows):
    # The factor 2⁻¹¹² of the bits is made up for in two steps, so that no product leaves the range of float32.
    x, y = carray(floats_pointer(at[1]), (N, I)), carray(floats_pointer(at[5] + 4 * place), (N * rows,))
    for n in range(N):
        for r in range(len(w)):
            sums = np.float32(0)
            for i in range(I):
                sums += half_bits(w[r, i]) * x[n, i]
            y[n * rows + r] = sums * np.float32(2.0**28)


@inlined
def _block_rows(at, N, count, code, w, group, place, rows):
    w += group * count * size_of(code)
    for n in range(N):
        x = at[2] + n * count * PLANES
        scales = carray(floats_pointer(at[3] + 4 * n * count), (count,))
        if code == Q8_0:
            four = four_8bit(w, x, scales, count)
        elif code == Q4_0:
            four = four_4bit(w, x, scales, count)
        else:
            four = four_4bit_shifted(w, x, scales, carray(floats_pointer(at[4] + 4 * n * count), (count,)), count)
        store(at[5] + 4 * (place + n * rows), four)


@compiled_parallel
def add_rows(x, w, sums):
    """Write x w for one row x (I,) and a matrix as (inputs, outputs) into sums (cores, O), to be added up."""
    I = x.size
    chunks = len(sums)
    for c in prange(chunks):
        y = sums[c]
        y[:] = 0
        for i in range(c * I // chunks, (c + 1) * I // chunks):
            row, factor = w[i], x[i]
            for o in range(y.size):
                y[o] += factor * row[o]
