"""Attention to a few keys in vector registers: float32 heads of 4, 8, … channels.

Matrix products of this size take longer to call than to compute. See `strategies` for the arguments.
"""

import numpy as np

from ..compile import compiled, exp, maximum
from ..vectorized_rows import floats_at, no_floats, plus_product, spread, store, total_of_one

BYTES = 4  # of a number
REGISTER = 16  # bytes


@compiled
def attend_by_vectors(plan, heads, y):
    """Fill in the weights and the mixtures y."""
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
    """Fill in the gradients of queries, keys and values."""
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
