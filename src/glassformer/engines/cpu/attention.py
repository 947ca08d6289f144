"""The kernel of `ops.attention`, which keeps all weights.

The usual case, heads cut out of rows and no mask but that of positions, goes head by head and skips what cannot be
seen. Everything else takes products of all heads of a batch, with the softmax between them in place. Results lie in
memory as (B, T, H, C), so that putting the heads side by side again copies nothing.

Head by head, there are two strategies, pairs of compiled functions on heads that lie in memory as (B, T, H, C):

    forward(plan, heads, y)               heads = (q, k, v, weights); fills in weights (B, H, T, S) and mixtures y
    backward(plan, dy, heads, dheads)     dheads = (dq, dk, dv), of which dk and dv start at zero

Many keys are attended to some queries at a time, which are done with while their numbers are still in the cache:
products by BLAS, and the softmax between them. A few keys are attended to in vector registers, by float32 heads of
4, 8, … channels: matrix products of this size take longer to call than to compute.
"""

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from ... import ops
from ...core.arrays import Array, cast, unbroadcast
from ...core.dispatch import replaces
from ...core.errors import ShapeError
from ...core.threads import cores
from ...ops.attention import AttentionSaved, default_scale, grouped
from ...ops.dropout import MOST, dropped
from ...ops.mask import FULL, Pattern
from .compile import REAL, compiled, exp, is_array, maximum
from .cores import each
from .elementwise import dropout, is_key
from .products import gemm, gemm_address
from .rowwise import (
    finite_or_zero,
    softmax_backward_in_place,
    softmax_biased_in_place,
    softmax_in_place,
    softmax_row,
    softmax_row_backward,
)
from .simd import floats_at, no_floats, plus_product, spread, store, total_of_one

PRODUCTS, VECTORS = range(2)
RUN = 32  # queries at a time ...
SHORT_RUN, SHORT = 16, 128  # ... and where there are at most SHORT keys
FEW = 16  # keys, for which products are not worth calling
WORTHWHILE = 1 << 17  # pairs of a query and a key; fewer are not worth a second core
_BOOL = np.dtype(np.bool_)


@replaces(ops.attention)
def attention(
    q: Array, k: Array, v: Array, bias: Array | None = None, *, mask: Array | None = None, pattern: Pattern = FULL,
    key: Array | None = None, rate: float = 0.0, scale: float | None = None,
) -> Any:  # fmt: skip
    if not _fits(q, k, v) or (q.shape[-2] > k.shape[-2] and not pattern.is_full) or not 0 <= rate < MOST:
        return NotImplemented
    weights = np.empty((*q.shape[:-1], k.shape[-2]), q.dtype)
    scale = default_scale(q) if scale is None else float(scale)
    drops = key is not None and rate > 0
    if drops and not is_key(key):
        return NotImplemented
    if mask is None and bias is None and not drops and _goes_by_heads(pattern, q, k, v):
        y = _heads(q)
        _by_heads(pattern, scale, (q, k, v, weights), y)
        return y, AttentionSaved(q, k, v, bias, weights, None)
    np.matmul(grouped(q, k), k.swapaxes(-1, -2), out=grouped(weights, k))
    if not _softmax(weights, bias, mask, pattern, scale):
        return NotImplemented
    mixing, keep = dropout(weights, key, rate=rate) if drops else (weights, None)
    if q.shape[-3] == k.shape[-3]:
        y = np.matmul(mixing, v, out=_heads(q))
    else:
        y = np.matmul(grouped(mixing, v), v).reshape(q.shape)
    return y, AttentionSaved(q, k, v, bias, weights, keep)


@replaces(ops.attention_backward)
def attention_backward(
    dy: Array, saved: AttentionSaved, *, pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None
) -> Any:
    q, k, v, bias, weights, keep = saved
    if not _fits(q, k, v) or q.shape[-3] != k.shape[-3]:
        return NotImplemented
    for x, shape in ((dy, q.shape), (weights, (*q.shape[:-1], k.shape[-2]))):
        if type(x) is not np.ndarray or x.shape != shape or x.dtype != q.dtype:
            return NotImplemented
    if keep is not None and not is_array(keep, _BOOL, weights.shape):
        return NotImplemented
    if bias is not None and (type(bias) is not np.ndarray or bias.dtype not in REAL):
        return NotImplemented
    scale = default_scale(q) if scale is None else float(scale)
    dq, dk, dv = map(_heads, (q, k, v))
    if bias is None and keep is None and _goes_by_heads(pattern, dy, q, k, v) and weights.flags.c_contiguous:
        dk[...] = 0
        dv[...] = 0
        _by_heads(pattern, scale, (q, k, v, weights), dy, (dq, dk, dv))
        return dq, dk, dv, None
    mixing = weights if keep is None else dropped(weights, keep, rate=rate)
    np.matmul(mixing.swapaxes(-1, -2), dy, out=dv)
    dscores = np.matmul(dy, v.swapaxes(-1, -2), out=np.empty(weights.shape, q.dtype))  # in C order whatever dy's
    if keep is not None:
        dscores = dropped(dscores, keep, rate=rate)
    T, S = weights.shape[-2:]
    softmax_backward_in_place(_stacked(dscores), _stacked(weights), *spans(FULL, T, S), 1.0)
    dbias = None if bias is None else cast(unbroadcast(dscores, tuple(bias.shape)), bias.dtype)
    dscores *= q.dtype.type(scale)
    np.matmul(dscores, k, out=dq)
    np.matmul(dscores.swapaxes(-1, -2), q, out=dk)
    return dq, dk, dv, dbias


def _by_heads(pattern: Pattern, scale: float, heads: tuple[Array, ...], y: Array, dheads: Any = ()) -> None:
    """Fill in weights and mixtures y, given heads (q, k, v, weights), or, given dy in the place of y, dheads."""
    q, k, v, weights = heads
    plan = head_plan(pattern, *weights.shape[-2:], gemm_address(q.dtype), scale)
    strategy = strategy_for(q.dtype, k.shape[-2], q.shape[-1])

    def part(rows: slice) -> None:
        inputs, out = (*[_memory(x)[rows] for x in (q, k, v)], weights[rows]), _memory(y)[rows]
        if dheads:
            BACKWARD[strategy](plan, out, inputs, tuple([_memory(x)[rows] for x in dheads]))
        else:
            FORWARD[strategy](plan, inputs, out)

    # A few keys are done with sooner than handed out.
    parts = shares(len(weights), weights.size) if strategy == PRODUCTS else [slice(None)]
    each([partial(part, rows) for rows in parts])


def _softmax(weights: Array, bias: Array | None, mask: Array | None, pattern: Pattern, scale: float) -> bool:
    """Turn products of queries and keys into weights, in place; False where bias or mask do not fit."""
    T, S = weights.shape[-2:]
    if mask is None and bias is None and pattern.stride is None:
        softmax_in_place(_stacked(weights), *spans(pattern, T, S), scale)
        return True
    if mask is not None and (type(mask) is not np.ndarray or mask.dtype != np.bool_):
        return False
    if bias is not None and (type(bias) is not np.ndarray or bias.dtype not in REAL):
        return False
    allowed = np.True_ if pattern.is_full else pattern.dense(T, S)
    try:
        allowed = allowed if mask is None else mask & allowed
        over = [
            np.broadcast_to(x, weights.shape).reshape(_four(weights.shape))
            for x in (weights.dtype.type(0) if bias is None else np.asarray(bias, weights.dtype), allowed)
        ]
    except ValueError:
        return False
    softmax_biased_in_place(weights.reshape(_four(weights.shape)), *over, scale)
    return True


def _goes_by_heads(pattern: Pattern, *heads: Array) -> bool:
    """Return whether heads (B, H, T, C), as many of queries as of keys, lie in memory as (B, T, H, C)."""
    if pattern.stride is not None or not has_products(heads[0].dtype) or heads[0].shape[1:2] != heads[-1].shape[1:2]:
        return False
    return all(x.ndim == 4 and x.size and _memory(x).flags.c_contiguous for x in heads)


def _memory(heads: Array) -> Array:
    return heads.swapaxes(-3, -2)


def _fits(q: Array, k: Array, v: Array) -> bool:
    """Return whether heads (..., H, T, C) of one real type fit each other."""
    if not type(q) is type(k) is type(v) is np.ndarray or q.dtype not in REAL or not q.dtype == k.dtype == v.dtype:
        return False
    if not q.ndim == k.ndim > 2 or k.shape != v.shape or q.shape[:-3] != k.shape[:-3]:
        return False
    return q.shape[-1] == k.shape[-1] > 0 and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0


def _heads(x: Array) -> Array:
    """Return an array as x (..., H, T, C) that lies in memory as (..., T, H, C)."""
    *lead, H, T, C = x.shape
    return np.empty((*lead, T, H, C), x.dtype).swapaxes(-3, -2)


def _stacked(x: Array) -> Array:
    return x.reshape(x.size // max(x.shape[-1] * x.shape[-2], 1), *x.shape[-2:])


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape[:-3]), *shape[-3:])


# --- strategies, head by head ----------------------------------------------------------------------------------------


class HeadPlan(NamedTuple):
    """The settings of a strategy; query t sees its keys first[t] … last[t] − 1, which never move back."""

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
    """Return whether loops can call BLAS for arrays of this type."""
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
                largest = finite_or_zero(largest, real)
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
