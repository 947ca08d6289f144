"""Attention in tiles: products in registers, and between them one pass over the tile while it is still in the cache.

The rows of one head lie apart in memory. Keys and values of a tile are copied without gaps, once for all queries that
they meet; keys are transposed (C, keys) on the way, and multiplied by the scale of the scores.

A part of the positions is numbers start, start + step, … of all; below, queries and keys count within their part.
"""

from typing import NamedTuple

import numpy as np

from ...core.arrays import Array
from ...ops.attention_strided import Others
from ...ops.attention_tiled import TiledSaved
from ...ops.mask import Pattern
from .compile import compiled, exp, inlined, maximum, widest_registers
from .elementwise import GOLDEN, mix
from .products import BYTES, multiply_tiles


class Pairs(NamedTuple):
    """Everything that may change the score or the weight of one pair."""

    plain: bool  # nothing changes a score
    biased: bool
    bias: Array  # (2, B, H, T, S), of any size if there is none
    masked: bool
    mask: Array  # (2, B, H, T, S)
    stride: int  # keys at least so far away are seen if the distance is a multiple; 0: all are
    apart: bool  # no query sees itself
    offset: int  # the index of the first query among the keys
    drops: bool
    key: Array
    border: np.uint32  # a weight is dropped if its bits, those of `keep_mask`, are below
    factor: float  # on weights that are not dropped


class Problem(NamedTuple):
    """The arrays that attention reads, and y and log_sum, which its forward pass writes."""

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
    """The gradient of the result, and those that the backward pass adds to."""

    dy: Array
    along: Array  # (B, H, T): Σ dy · y
    dq: Array
    dk: Array
    dv: Array
    dbias: Array  # (B, H, T, S), size 1 along axes on which the bias does not depend


@compiled
def attend_tiles(jobs, problem, rows, columns):
    """Attend by the runs of `joined` jobs, `rows` queries and `columns` keys at a time, from y and log_sum on."""
    q, y, step, dtype = problem.q, problem.y, problem.step, problem.q.dtype
    served, C, X = q.shape[2] // problem.k.shape[2], q.shape[3], y.shape[3]
    kt, values = _scratch(C, columns, dtype), _scratch(columns, X, dtype)
    scores, mixed = _scratch(rows, columns, dtype), _scratch(rows, X, dtype)
    for n in range(len(jobs)):
        b, h, start, count, begin, end, low, high = jobs[n]
        largest, total = np.empty(end - begin, dtype), np.empty(end - begin, dtype)
        for t in range(begin, end):
            largest[t - begin] = problem.log_sum[b, h, start + step * t]
            total[t - begin] = 0 if largest[t - begin] == -np.inf else 1
        for left in range(low, high, columns):
            right = min(left + columns, high)
            keys, shared = problem.k[b, start + step * left :: step, h // served], (left, right)
            _transpose(keys[: right - left], problem.scale, kt)
            _copy(problem.v[b, start + step * left :: step, h // served][: right - left], 1, values)
            for top in range(begin, end, rows):
                queries = top, min(top + rows, end)
                inside = _met(problem, queries, shared, count)
                if inside[0] < inside[1]:
                    run = slice(top - begin, queries[1] - begin)
                    tile = kt, values, scores, mixed
                    _attend_tile(jobs[n], queries, left, inside, problem, tile, largest[run], total[run])
        for t in range(begin, end):
            if total[t - begin] != 0:
                _multiply(y[b, start + step * t, h], 1 / total[t - begin])
                problem.log_sum[b, h, start + step * t] = largest[t - begin] + np.log(total[t - begin])


@compiled
def _attend_tile(job, queries, zero, inside, problem, tile, largest, total):
    """Take keys into the mixtures y, which are still to be divided by the total; keys count from the tile's first."""
    q, y, step, pairs = problem.q, problem.y, problem.step, problem.pairs
    kt, values, scores, mixed = tile
    b, h, start, keys = job[:4]
    (_, T, H, C), X, size = q.shape, y.shape[3], q.itemsize
    low, high = inside
    rows, none, width = queries[1] - queries[0], q.dtype.type(0), scores.strides[0]
    query, offset = q[b, start + step * queries[0], h:].ctypes.data, low * size
    weight, value = scores.ctypes.data + offset, values.ctypes.data + low * values.strides[0]
    mixture = mixed.ctypes.data
    multiply_tiles(
        rows, (high - low) * size, C, query, step * q.strides[1], size, kt.ctypes.data + offset, kt.strides[0],
        none, weight, width,
    )  # fmt: skip
    for t in range(rows):
        at = start + step * (queries[0] + t)
        left, right = _inside(problem, queries[0] + t, zero, inside, keys)
        _clear(scores[t, low:high], left - low, right - low)
        row, column = scores[t, left:right], start + step * (zero + left)
        if not pairs.plain:
            settle(row, (b, h, at, column), step, pairs)
        rescale = _softmax(row, t, largest, total)
        if rescale != 1:
            _multiply(y[b, at, h], rescale)
        if pairs.drops:
            drop(row, (b * H + h) * T + at, column, step, pairs)
    multiply_tiles(
        rows, X * size, high - low, weight, width, size, value, values.strides[0], none, mixture, mixed.strides[0]
    )
    for t in range(rows):
        _add(mixed[t, :X], y[b, start + step * (queries[0] + t), h])


@inlined
def _softmax(values, t, largest, total):
    """Turn scores of row t into exp(scores − largest); return the factor by which earlier ones change."""
    widest_registers()
    real = values.dtype.type
    before = largest[t]
    highest = before
    for s in range(values.size):
        highest = maximum(highest, values[s])
    shift = real(0) if highest == -np.inf else highest
    added = real(0)
    for s in range(values.size):  # `exponentials`, whose loop would become other instructions here, with other bits
        values[s] = exp(values[s] - shift)
        added += values[s]
    rescale = real(1) if highest == before else exp(before - shift)
    largest[t] = highest
    total[t] = total[t] * rescale + added
    return rescale


@compiled
def attend_tiles_backward(jobs, problem, grads, rows, columns):
    """Add to the gradients what the runs of `backward_jobs` give, `rows` queries at a time."""
    q, step, dtype = problem.q, problem.step, problem.q.dtype
    served, C, X = q.shape[2] // problem.k.shape[2], q.shape[3], problem.v.shape[3]
    keys = _scratch(C, columns, dtype), _scratch(columns, C, dtype), _scratch(X, columns, dtype)
    dkeys, dvalues = _scratch(columns, C, dtype), _scratch(columns, X, dtype)
    tile = _scratch(rows, columns, dtype), _scratch(rows, columns, dtype)
    queries = _scratch(rows, C, dtype), _scratch(rows, X, dtype), _scratch(rows, C, dtype)
    for n in range(len(jobs)):
        b, g, start, count, begin, end, first, last = jobs[n]
        at, seen = start + step * begin, end - begin
        _transpose(problem.k[b, at::step, g][:seen], problem.scale, keys[0])
        _copy(problem.k[b, at::step, g][:seen], problem.scale, keys[1])
        _transpose(problem.v[b, at::step, g][:seen], 1, keys[2])
        dkeys[:seen], dvalues[:seen] = 0, 0
        for h in range(g * served, (g + 1) * served):
            for top in range(first, last, rows):
                met = top, min(top + rows, last)
                inside = _met(problem, met, (begin, end), count)
                if inside[0] < inside[1]:
                    _attend_tile_backward(
                        jobs[n], h, met, inside, problem, grads, keys, (dkeys, dvalues), tile, queries
                    )
        for s in range(seen):
            _multiply(dkeys[s, :C], problem.scale)
            _add(dkeys[s, :C], grads.dk[b, at + step * s, g])
            _add(dvalues[s, :X], grads.dv[b, at + step * s, g])


@compiled
def _attend_tile_backward(job, h, met, inside, problem, grads, keys, dkeys, tile, queries):
    """Add up what one tile gives; its keys count from the first of the job."""
    step, (_, _, _, C), X = problem.step, problem.q.shape, problem.v.shape[3]
    low, seen = inside[0], inside[1] - inside[0]
    b, start, rows = job[0], job[2], met[1] - met[0]
    at, size, width = start + step * met[0], problem.q.itemsize, tile[0].strides[0]
    _copy(problem.q[b, at::step, h][:rows], 1, queries[0])
    _copy(grads.dy[b, at::step, h][:rows], 1, queries[1])
    offset, none, one = low * size, problem.q.dtype.type(0), problem.q.dtype.type(1)
    query, dmixture, dquery = queries[0].ctypes.data, queries[1].ctypes.data, queries[2].ctypes.data
    q_row, y_row = queries[0].strides[0], queries[1].strides[0]
    kt, value, key = keys[0].ctypes.data + offset, keys[2].ctypes.data + offset, keys[1].ctypes.data + low * q_row
    weight, dscore = tile[0].ctypes.data + offset, tile[1].ctypes.data + offset
    dkey, dvalue = dkeys[0].ctypes.data + low * q_row, dkeys[1].ctypes.data + low * y_row
    multiply_tiles(rows, seen * size, C, query, q_row, size, kt, width, none, weight, width)
    multiply_tiles(rows, seen * size, X, dmixture, y_row, size, value, width, none, dscore, width)
    _softmax_tile_backward(job, h, met, inside, problem, grads, tile[0], tile[1])
    multiply_tiles(seen, X * size, rows, weight, size, width, dmixture, y_row, one, dvalue, y_row)
    multiply_tiles(seen, C * size, rows, dscore, size, width, query, q_row, one, dkey, q_row)
    multiply_tiles(rows, C * size, seen, dscore, width, size, key, q_row, none, dquery, q_row)
    for t in range(rows):
        _add(queries[2][t, :C], grads.dq[b, at + step * t, h])


@compiled
def _softmax_tile_backward(job, h, queries, inside, problem, grads, scores, dscores):
    """Turn the scores of a tile into the weights p, dropped, and the gradients of the weights into those of the scores.

    p = exp(scores − log_sum)      dscores = p · (dweights − Σ dy · y)
    """
    step, pairs, (_, T, H, _) = problem.step, problem.pairs, problem.q.shape
    b, start, zero = job[0], job[2], job[4]
    for t in range(queries[0], queries[1]):
        left, right = _inside(problem, t, zero, inside, job[3])
        row = t - queries[0]
        for x in (scores, dscores):
            _clear(x[row, inside[0] : inside[1]], left - inside[0], right - inside[0])
        values, dvalues = scores[row, left:right], dscores[row, left:right]
        pair = (b, h, start + step * t, start + step * (zero + left))
        number = (b * H + h) * T + pair[2]
        if not pairs.plain:
            settle(values, pair, step, pairs)
        if pairs.drops:
            drop(dvalues, number, pair[3], step, pairs)
        _softmax_row_backward(values, dvalues, problem.log_sum[b, h, pair[2]], grads.along[b, h, pair[2]])
        if pairs.biased:
            add_to_bias(grads.dbias, dvalues, pair, step)
        if pairs.drops:
            drop(values, number, pair[3], step, pairs)


@inlined
def _softmax_row_backward(values, dvalues, log_sum, along):
    widest_registers()
    for s in range(values.size):
        p = exp(values[s] - log_sum)
        values[s] = p
        dvalues[s] = p * (dvalues[s] - along)


@inlined
def _met(problem, queries, keys, count):
    """Return which of some keys a run of queries may see, counted from the first of them and from a whole register."""
    left, right = max(keys[0], problem.first[queries[0]]), min(keys[1], problem.last[queries[1] - 1], count)
    register = BYTES // problem.q.itemsize
    return (left - keys[0]) // register * register, right - keys[0]


@inlined
def _inside(problem, t, zero, inside, count):
    """Return which of the keys inside a tile query t may see, counted from key `zero`."""
    low, high = inside
    left = min(max(problem.first[t] - zero, low), high)
    return left, max(min(problem.last[t] - zero, count - zero, high), left)


@compiled
def _scratch(rows, columns, dtype):
    """Return a matrix whose rows begin and end with whole registers."""
    x = np.zeros(1, dtype)
    register = BYTES // x.itemsize
    # One register more, so that numbers below each other do not compete for the same lines of the cache.
    width = (columns + register - 1) // register * register + register
    x = np.zeros(rows * width + register, dtype)
    start = -x.ctypes.data % BYTES // x.itemsize
    return x[start : start + rows * width].reshape(rows, width)


@compiled
def _copy(x, factor, out):
    factor = x.dtype.type(factor)
    for s in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[s, c] = x[s, c] * factor


@compiled
def _transpose(x, factor, out):
    factor = x.dtype.type(factor)
    for s in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[c, s] = x[s, c] * factor


@inlined
def _clear(row, left, right):
    rest = row[right:]  # counted from 0, which vectorizes
    for s in range(left):
        row[s] = 0
    for s in range(rest.size):
        rest[s] = 0


@inlined
def _multiply(row, factor):
    for c in range(row.size):
        row[c] *= factor


@inlined
def _add(row, out):
    for c in range(row.size):
        out[c] += row[c]


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
def settle(scores, pair, step, pairs):
    """Turn some scores of one query into scores + bias, −inf where the pair is not allowed.

    pair = (example, head, query, first key); the keys are `step` apart.
    """
    b, h, t, s = pair
    real = scores.dtype.type
    for i in range(scores.size):
        score = scores[i]
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
    end, counter, stride = u(start + pairs.key[1]), u(start + u(u(column) * u(GOLDEN))), u(u(step) * u(GOLDEN))
    for s in range(weights.size):
        bits = mix(u(mix(u(counter + u(u(s) * stride))) ^ end))
        kept = weights[s] * real(pairs.factor)
        weights[s] = kept if bits >= pairs.border else real(0)


@compiled
def add_to_bias(dbias, dscores, pair, step):
    """Add the gradients of some scores of one query to dbias (B, H, T, S), whose axes may have size 1."""
    b, h, t, s = pair
    row = dbias[min(b, dbias.shape[0] - 1), min(h, dbias.shape[1] - 1), min(t, dbias.shape[2] - 1)]
    for i in range(dscores.size):
        row[min(s + step * i, row.size - 1)] += dscores[i]
