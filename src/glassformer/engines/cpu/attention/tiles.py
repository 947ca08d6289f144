"""Attention in tiles: products by BLAS, and between them one pass over the tile while it is still in the cache.

A part of the positions is numbers start, start + step, … of all; below, queries and keys count within their part.
"""

from typing import NamedTuple

import numpy as np

from ....arrays import Array
from ....ops.attention_strided import Others
from ....ops.attention_tiled import TiledSaved
from ....ops.mask import Pattern
from ..compile import compiled, exp, inlined, maximum
from ..dropout import GOLDEN, mix
from ..products import gemm


class Pairs(NamedTuple):
    """Everything that may change the score or the weight of one pair."""

    plain: bool  # nothing changes a score
    biased: bool
    bias: Array  # (2, B, H, T, S), of any size if there is none
    masked: bool
    mask: Array  # (2, B, H, T, S)
    stride: int  # keys at least so far away are seen if the distance is a multiple; 0: all are
    apart: bool  # no query sees itself
    offset: int  # the place of the first query among the keys
    drops: bool
    key: Array
    border: np.uint32  # a weight is dropped if its bits, those of `keep_mask`, are below
    factor: float  # on weights that are not dropped


class Problem(NamedTuple):
    """What attention reads, and y and log_sum, which its forward pass writes."""

    gemm: int  # the address of BLAS's product
    q: Array  # (B, T, H, C), as all heads
    k: Array
    v: Array
    y: Array
    log_sum: Array  # (B, H, T)
    scale: float
    step: int
    first: Array  # (T,): the first key that each query may see; never moves back from one query to the next
    last: Array  # (T,): the one after the last; never moves back either
    pairs: Pairs


class Grads(NamedTuple):
    """The gradient of the result, and those that the backward pass adds to; dq and dk lack the factor `scale`."""

    dy: Array
    along: Array  # (B, H, T): Σ dy · y
    dq: Array
    dk: Array
    dv: Array
    dbias: Array  # (B, H, T, S), size 1 along axes on which the bias does not depend


@compiled
def attend_tiles(jobs, problem, rows, columns):
    """Let the runs of `forward_jobs` attend, `columns` keys at a time, from y and log_sum as they stand."""
    dtype, y, step = problem.q.dtype, problem.y, problem.step
    scores, largest, total = np.empty((rows, columns), dtype), np.empty(rows, dtype), np.empty(rows, dtype)
    for n in range(len(jobs)):
        b, h, start, _, begin, end, low, high = jobs[n]
        at = start + step * begin
        for t in range(end - begin):
            largest[t] = problem.log_sum[b, h, at + step * t]
            total[t] = 0 if largest[t] == -np.inf else 1
        for left in range(low, high, columns):
            _attend_tile(jobs[n], left, min(left + columns, high), problem, scores, largest, total)
        for t in range(end - begin):
            if total[t] != 0:
                _multiply(y[b, at + step * t, h], 1 / total[t])
                problem.log_sum[b, h, at + step * t] = largest[t] + np.log(total[t])


@compiled
def _attend_tile(job, low, high, problem, scores, largest, total):
    """Take keys low … high − 1 into the mixtures y, which are still to be divided by the total."""
    q, k, v, y, step, pairs = problem.q, problem.k, problem.v, problem.y, problem.step, problem.pairs
    b, h, start, keys, begin, end = job[:6]
    (_, T, H, C), (_, _, K, X) = q.shape, v.shape
    at, to, g = start + step * begin, start + step * low, h // (H // K)
    rows, seen, width = end - begin, high - low, scores.shape[1]
    query, key, value = q[b, at, h:].ctypes.data, k[b, to, g:].ctypes.data, v[b, to, g:].ctypes.data
    zero, one, tile, mixture = q.dtype.type(0), q.dtype.type(1), scores.ctypes.data, y[b, at, h:].ctypes.data
    gemm(problem.gemm, False, True, rows, seen, C, query, step * H * C, key, step * K * C, zero, tile, width)
    for t in range(rows):
        left, right = _inside(problem, begin + t, low, high, keys)
        _clear(scores[t, :seen], left, right)
        values = scores[t, left:right]
        place = (b, h, at + step * t, to + step * left)
        scale = problem.scale
        if not pairs.plain:
            settle(values, place, step, scale, pairs)
            scale = 1.0
        rescale = _softmax(values, scale, t, largest, total)
        if rescale != 1:
            _multiply(y[b, at + step * t, h], rescale)
        if pairs.drops:
            drop(values, (b * H + h) * T + place[2], place[3], step, pairs)
    gemm(problem.gemm, False, False, rows, X, seen, tile, width, value, step * K * X, one, mixture, step * H * X)


@inlined
def _softmax(values, scale, t, largest, total):
    """Turn scores of row t into exp(scores · scale − largest); return the factor by which earlier ones change."""
    real = values.dtype.type
    factor, before = real(scale), largest[t]
    highest = before
    for s in range(values.size):
        values[s] *= factor
        highest = maximum(highest, values[s])
    shift = real(0) if highest == -np.inf else highest
    added = real(0)
    for s in range(values.size):
        values[s] = exp(values[s] - shift)
        added += values[s]
    rescale = real(1) if highest == before else exp(before - shift)
    largest[t] = highest
    total[t] = total[t] * rescale + added
    return rescale


@compiled
def attend_tiles_backward(jobs, problem, grads, rows, columns):
    """Add to the gradients what the runs of `backward_jobs` give, `rows` queries at a time."""
    q, first, last = problem.q, problem.first, problem.last
    served = q.shape[2] // problem.k.shape[2]
    scores, dscores = np.empty((rows, columns), q.dtype), np.empty((rows, columns), q.dtype)
    for n in range(len(jobs)):
        _, g, _, keys, begin, end, start, stop = jobs[n]
        for h in range(g * served, (g + 1) * served):
            for low in range(start, stop, rows):
                high = min(low + rows, stop)
                left, right = max(begin, first[low]), min(end, last[high - 1], keys)
                if left < right:
                    _attend_tile_backward(jobs[n], h, (low, high), (left, right), problem, grads, scores, dscores)


@compiled
def _attend_tile_backward(job, h, queries, keys, problem, grads, scores, dscores):
    q, k, v, step = problem.q, problem.k, problem.v, problem.step
    (_, _, H, C), (_, _, K, X) = q.shape, v.shape
    b, g, start = job[0], job[1], job[2]
    at, to = start + step * queries[0], start + step * keys[0]
    rows, seen, width = queries[1] - queries[0], keys[1] - keys[0], scores.shape[1]
    # From one row to the next of q and dq, k and dk, dy, v and dv.
    q_row, k_row, y_row, v_row = step * H * C, step * K * C, step * H * X, step * K * X
    query, key, value = q[b, at, h:].ctypes.data, k[b, to, g:].ctypes.data, v[b, to, g:].ctypes.data
    dmixture, dquery = grads.dy[b, at, h:].ctypes.data, grads.dq[b, at, h:].ctypes.data
    dkey, dvalue = grads.dk[b, to, g:].ctypes.data, grads.dv[b, to, g:].ctypes.data
    zero, one, tile, dtile = q.dtype.type(0), q.dtype.type(1), scores.ctypes.data, dscores.ctypes.data
    gemm(problem.gemm, False, True, rows, seen, C, query, q_row, key, k_row, zero, tile, width)
    gemm(problem.gemm, False, True, rows, seen, X, dmixture, y_row, value, v_row, zero, dtile, width)
    _softmax_tile_backward(job, h, queries, keys, problem, grads, scores, dscores)
    gemm(problem.gemm, True, False, seen, X, rows, tile, width, dmixture, y_row, one, dvalue, v_row)
    gemm(problem.gemm, True, False, seen, C, rows, dtile, width, query, q_row, one, dkey, k_row)
    gemm(problem.gemm, False, False, rows, C, seen, dtile, width, key, k_row, one, dquery, q_row)


@compiled
def _softmax_tile_backward(job, h, queries, keys, problem, grads, scores, dscores):
    """Turn the scores of a tile into the weights p, dropped, and the gradients of the weights into those of the scores.

    p = exp(scores · scale − log_sum)      dscores = p · (dweights − Σ dy · y)
    """
    step, pairs, (_, T, H, _) = problem.step, problem.pairs, problem.q.shape
    b, start = job[0], job[2]
    for t in range(queries[0], queries[1]):
        left, right = _inside(problem, t, keys[0], keys[1], job[3])
        row, seen = t - queries[0], keys[1] - keys[0]
        _clear(scores[row, :seen], left, right)
        _clear(dscores[row, :seen], left, right)
        values, dvalues = scores[row, left:right], dscores[row, left:right]
        place = (b, h, start + step * t, start + step * (keys[0] + left))
        number = (b * H + h) * T + place[2]
        scale = problem.scale
        if not pairs.plain:
            settle(values, place, step, scale, pairs)
            scale = 1.0
        if pairs.drops:
            drop(dvalues, number, place[3], step, pairs)
        _softmax_row_backward(values, dvalues, scale, problem.log_sum[b, h, place[2]], grads.along[b, h, place[2]])
        if pairs.biased:
            add_to_bias(grads.dbias, dvalues, place, step)
        if pairs.drops:
            drop(values, number, place[3], step, pairs)


@inlined
def _softmax_row_backward(values, dvalues, scale, log_sum, along):
    factor = values.dtype.type(scale)
    for s in range(values.size):
        p = exp(values[s] * factor - log_sum)
        values[s] = p
        dvalues[s] = p * (dvalues[s] - along)


@inlined
def _inside(problem, t, low, high, keys):
    """Return which of the keys low … high − 1 query t may see, counted from low."""
    left = min(max(problem.first[t] - low, 0), high - low)
    return left, max(min(problem.last[t], keys, high) - low, left)


@inlined
def _clear(row, left, right):
    for s in range(left):
        row[s] = 0
    for s in range(right, row.size):
        row[s] = 0


@inlined
def _multiply(row, factor):
    for c in range(row.size):
        row[c] *= factor


# --- single pairs of a query and a key -------------------------------------------------------------------------------


def pairs_of(saved: TiledSaved, pattern: Pattern, rate: float) -> Pairs:
    q, k, _, bias, mask, key = saved[:6]
    shape = (*q.shape[:-1], k.shape[-2])
    stride = pattern.stride or 0
    apart = isinstance(pattern, Others) and not pattern.is_span
    return Pairs(
        plain=bias is None and mask is None and stride == 0 and not apart,
        biased=bias is not None,
        bias=_wide(np.zeros((1, 1), q.dtype) if bias is None else np.broadcast_to(bias, shape)),
        masked=mask is not None,
        mask=_wide(np.ones((1, 1), bool) if mask is None else np.broadcast_to(mask, shape)),
        stride=stride,
        apart=apart,
        offset=k.shape[-2] - q.shape[-2],
        drops=key is not None,
        key=np.zeros(2, np.uint32) if key is None else key,
        border=np.uint32(round(rate * 2**32)),
        factor=1 / (1 - rate),
    )


def _wide(x: Array) -> Array:
    """View x (..., T, S) as (2, B, H, T, S): the first axis keeps it out of C order, so that one kernel serves all."""
    heads = x.shape[-3] if x.ndim > 2 else 1
    x = x.reshape(-1, heads, *x.shape[-2:])
    return np.broadcast_to(x, (2, *x.shape))


@compiled
def settle(scores, place, step, scale, pairs):
    """Turn some scores of one query into scores · scale + bias, −inf where the pair is not allowed.

    place = (example, head, query, first key); the keys are `step` apart.
    """
    b, h, t, s = place
    real = scores.dtype.type
    for i in range(scores.size):
        score = scores[i] * real(scale)
        column = s + step * i
        distance = abs(t + pairs.offset - column)
        if pairs.biased:
            score += pairs.bias[0, b, h, t, column]
        if pairs.masked and not pairs.mask[0, b, h, t, column]:
            score = real(-np.inf)
        if (pairs.apart and distance == 0) or (pairs.stride and distance >= pairs.stride and distance % pairs.stride):
            score = real(-np.inf)
        scores[i] = score


@compiled
def drop(weights, row, column, step, pairs):
    """Apply dropout to some weights of one row, which are in columns column, column + step, … of all weights."""
    real, u = weights.dtype.type, np.uint32
    start = mix(u(row) ^ pairs.key[0])
    end, place, stride = u(start + pairs.key[1]), u(start + u(u(column) * u(GOLDEN))), u(u(step) * u(GOLDEN))
    for s in range(weights.size):
        bits = mix(u(mix(u(place + u(u(s) * stride))) ^ end))
        kept = weights[s] * real(pairs.factor)
        weights[s] = kept if bits >= pairs.border else real(0)


@compiled
def add_to_bias(dbias, dscores, place, step):
    """Add the gradients of some scores of one query to dbias (B, H, T, S), whose axes may have size 1."""
    b, h, t, s = place
    row = dbias[min(b, dbias.shape[0] - 1), min(h, dbias.shape[1] - 1), min(t, dbias.shape[2] - 1)]
    for i in range(dscores.size):
        row[min(s + step * i, row.size - 1)] += dscores[i]
