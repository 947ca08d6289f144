"""Two strategies for attention in which only positions decide which keys a query sees, and the choice between them.

Each strategy is a pair of compiled functions of the same arguments, on heads that lie in memory as (B, T, H, C):

    forward(plan, heads, y)               heads = (q, k, v, weights); fills in weights (B, H, T, S) and mixtures y
    backward(plan, dy, heads, dheads)     dheads = (dq, dk, dv), of which dk and dv start at zero

Many keys are attended to some queries at a time, which are done with while their numbers are still in the cache:
products by BLAS, and the softmax between them. A few keys are attended to in vector registers, by float32 heads of
4, 8, … channels: matrix products of this size take longer to call than to compute.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....core.arrays import Array
from ....core.errors import ShapeError
from ....ops.mask import Pattern
from ..compile import REAL, compiled, exp, maximum
from ..cores import cores
from ..products import gemm, gemm_address
from ..softmax import softmax_row, softmax_row_backward
from ..vectorized_rows import floats_at, no_floats, plus_product, spread, store, total_of_one

PRODUCTS, VECTORS = range(2)
RUN = 32  # queries at a time ...
SHORT_RUN, SHORT = 16, 128  # ... and where there are at most SHORT keys
FEW = 16  # keys, for which products are not worth calling
WORTHWHILE = 1 << 17  # pairs of a query and a key; fewer are not worth a second core


class HeadPlan(NamedTuple):
    """What every strategy is told; query t sees its keys first[t] … last[t] − 1, which never move back."""

    gemm: int  # the address of BLAS's product
    first: Array  # (T,)
    last: Array  # (T,)
    run: int  # queries at a time
    scale: float  # factor on the scores


@lru_cache(maxsize=256)
def head_plan(pattern: Pattern, T: int, S: int, gemm: int, scale: float) -> HeadPlan:
    return HeadPlan(gemm, *spans(pattern, T, S), SHORT_RUN if S <= SHORT else RUN, scale)


@lru_cache(maxsize=256)
def spans(pattern: Pattern, T: int, S: int) -> tuple[Array, Array]:
    """Return the first key that each of T queries may see, and the one after the last."""
    return checked_spans(pattern, range(S - T, S) if T <= S else range(T), S)


def checked_spans(pattern: Pattern, queries: range, S: int) -> tuple[Array, Array]:
    """Return the spans of a pattern, which may be one's own, as loops may trust them: in range, never moving back."""
    first, last = (np.ascontiguousarray(ends, np.int64) for ends in pattern.spans(queries, S))
    fits = first.shape == last.shape == (len(queries),)
    if fits and len(first):
        fits = first[0] >= 0 and last[-1] <= S and bool((first <= last).all())
        fits = fits and bool((np.diff(first) >= 0).all() and (np.diff(last) >= 0).all())
    if not fits:
        raise ShapeError(
            f"the spans of {pattern} for {len(queries)} queries and {S} keys leave the keys, or move back",
            hint="return 0 <= first <= last <= keys for every query, neither of them falling",
        )
    return first, last


def strategy_for(dtype: np.dtype, keys: int, channels: int) -> int:
    return VECTORS if keys <= FEW and dtype == np.float32 and channels % 4 == 0 else PRODUCTS


def has_products(dtype: np.dtype) -> bool:
    """Tell whether loops can call BLAS for arrays of this type."""
    return dtype in REAL and gemm_address(dtype) != 0


def shares(batch: int, pairs: int) -> list[slice]:
    """Cut a batch into one part for each core, where it has enough pairs of a query and a key."""
    parts = max(1, min(cores(), batch, pairs // WORTHWHILE)) if pairs >= 2 * WORTHWHILE else 1
    return [slice(batch * n // parts, batch * (n + 1) // parts) for n in range(parts)]


# --- many keys -------------------------------------------------------------------------------------------------------


@compiled
def attend_by_products(plan, heads, y):
    address, first, last, run, scale = plan
    q, k, v, weights = heads
    B, T, H, C = q.shape
    S = k.shape[1]
    real = q.dtype.type
    for b in range(B):
        for h in range(H):
            for start in range(0, T, run):
                stop = min(start + run, T)
                low, high = first[start], last[stop - 1]
                rows, seen = stop - start, high - low
                query, key, value = q[b, start, h:].ctypes.data, k[b, low, h:].ctypes.data, v[b, low, h:].ctypes.data
                weight = weights[b, h, start, low:].ctypes.data
                gemm(address, False, True, rows, seen, C, query, H * C, key, H * C, real(0), weight, S)
                for t in range(start, stop):
                    row = weights[b, h, t]
                    row[: first[t]] = 0
                    row[last[t] :] = 0
                    softmax_row(row[first[t] : last[t]], real(scale))
                out = y[b, start, h:].ctypes.data
                gemm(address, False, False, rows, C, seen, weight, S, value, H * C, real(0), out, H * C)


@compiled
def attend_by_products_backward(plan, dy, heads, dheads):
    address, first, last, run, scale = plan
    q, k, v, weights = heads
    dq, dk, dv = dheads
    B, T, H, C = q.shape
    S, D = k.shape[1], H * C
    real = q.dtype.type
    dscores = np.empty((run, S), q.dtype)
    for b in range(B):
        for h in range(H):
            for start in range(0, T, run):
                stop = min(start + run, T)
                low, high = first[start], last[stop - 1]
                rows, seen = stop - start, high - low
                dout, query, dquery = dy[b, start, h:].ctypes.data, q[b, start, h:].ctypes.data, dq[b, start, h:]
                key, dkey = k[b, low, h:].ctypes.data, dk[b, low, h:].ctypes.data
                value, dvalue = v[b, low, h:].ctypes.data, dv[b, low, h:].ctypes.data
                weight, dscore = weights[b, h, start, low:].ctypes.data, dscores.ctypes.data
                gemm(address, True, False, seen, C, rows, weight, S, dout, D, real(1), dvalue, D)
                gemm(address, False, True, rows, seen, C, dout, D, value, D, real(0), dscore, S)
                for t in range(start, stop):
                    row = dscores[t - start, :seen]
                    row[: first[t] - low] = 0
                    row[last[t] - low :] = 0
                    inside = slice(first[t] - low, last[t] - low)
                    softmax_row_backward(row[inside], weights[b, h, t, first[t] : last[t]], real(scale))
                gemm(address, False, False, rows, C, seen, dscore, S, key, D, real(0), dquery.ctypes.data, D)
                gemm(address, True, False, seen, C, rows, dscore, S, query, D, real(1), dkey, D)


# --- a few keys ------------------------------------------------------------------------------------------------------

BYTES = 4  # of a number
REGISTER = 16  # bytes


@compiled
def attend_by_vectors(plan, heads, y):
    _, first, last, _, scale = plan
    q, k, v, weights = heads
    B, T, H, C = q.shape
    real, row, end = np.float32, BYTES * H * C, BYTES * C
    for b in range(B):
        for h in range(H):
            queries, keys, values = q[b, 0, h].ctypes.data, k[b, 0, h].ctypes.data, v[b, 0, h].ctypes.data
            mixed, scores = y[b, 0, h].ctypes.data, weights[b, h]
            every = scores.reshape(-1)
            every[:] = -np.inf
            for t in range(T):
                largest = real(-np.inf)
                for s in range(first[t], last[t]):
                    scores[t, s] = _dot(queries + t * row, keys + s * row, end) * real(scale)
                    largest = maximum(largest, scores[t, s])
                if not abs(largest) < np.inf:
                    largest = real(0)
                for s in range(scores.shape[1]):
                    scores[t, s] -= largest
            for i in range(every.size):  # all of them at once: rows are too short for vectors
                every[i] = exp(every[i])
            for t in range(T):
                sum_ = real(0)
                for s in range(scores.shape[1]):
                    sum_ += scores[t, s]
                share = real(1) / sum_ if sum_ != 0 else real(0)
                for s in range(scores.shape[1]):
                    scores[t, s] *= share
                for c in range(0, end, REGISTER):
                    out = no_floats()
                    for s in range(first[t], last[t]):
                        out = plus_product(out, floats_at(values + s * row + c), spread(scores[t, s]))
                    store(mixed + t * row + c, out)


@compiled
def attend_by_vectors_backward(plan, dy, heads, dheads):
    _, first, last, _, scale = plan
    q, k, v, weights = heads
    dq, dk, dv = dheads
    B, T, H, C = q.shape
    S = k.shape[1]
    real, row, end = np.float32, BYTES * H * C, BYTES * C
    dscores = np.zeros((T, S), q.dtype)
    for b in range(B):
        for h in range(H):
            queries, keys, values = q[b, 0, h].ctypes.data, k[b, 0, h].ctypes.data, v[b, 0, h].ctypes.data
            dqueries, dkeys, dvalues = dq[b, 0, h].ctypes.data, dk[b, 0, h].ctypes.data, dv[b, 0, h].ctypes.data
            douts, shares = dy[b, 0, h].ctypes.data, weights[b, h]
            for t in range(T):
                along = real(0)
                for s in range(first[t], last[t]):
                    dscores[t, s] = _dot(douts + t * row, values + s * row, end)
                    along += shares[t, s] * dscores[t, s]
                for s in range(first[t], last[t]):
                    dscores[t, s] = shares[t, s] * (dscores[t, s] - along) * real(scale)
                for c in range(0, end, REGISTER):
                    out = no_floats()
                    for s in range(first[t], last[t]):
                        out = plus_product(out, floats_at(keys + s * row + c), spread(dscores[t, s]))
                    store(dqueries + t * row + c, out)
            for s in range(S):
                for c in range(0, end, REGISTER):
                    dkey, dvalue = no_floats(), no_floats()
                    for t in range(T):  # where a key is not seen, weight and gradient are zero
                        dkey = plus_product(dkey, floats_at(queries + t * row + c), spread(dscores[t, s]))
                        dvalue = plus_product(dvalue, floats_at(douts + t * row + c), spread(shares[t, s]))
                    store(dkeys + s * row + c, dkey)
                    store(dvalues + s * row + c, dvalue)


@compiled
def _dot(a, b, end):
    """Return the sum of products of as many numbers as `end` bytes hold, from two addresses on."""
    sums = no_floats()
    for c in range(0, end, REGISTER):
        sums = plus_product(sums, floats_at(a + c), floats_at(b + c))
    return total_of_one(sums)


FORWARD = (attend_by_products, attend_by_vectors)
BACKWARD = (attend_by_products_backward, attend_by_vectors_backward)
