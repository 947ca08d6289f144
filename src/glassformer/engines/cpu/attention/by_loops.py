"""Attention to a few keys: one loop for each head, because matrix products of this size cost more to call than to do.

See `ways` for the arguments.
"""

import numpy as np

from ..compile import compiled, exp, maximum


@compiled
def attend_by_loops(how, heads, y):
    """Fill in the weights and the mixtures y."""
    _, first, last, _, scale = how
    q, k, v, weights = heads
    B, T, H, C = q.shape
    real = q.dtype.type
    for b in range(B):
        for h in range(H):
            for t in range(T):
                query, row, out = q[b, t, h], weights[b, h, t], y[b, t, h]
                row[:] = 0
                out[:] = 0
                largest = real(-np.inf)
                for s in range(first[t], last[t]):
                    key = k[b, s, h]
                    score = real(0)
                    for c in range(C):
                        score += query[c] * key[c]
                    row[s] = score * real(scale)
                    largest = maximum(largest, row[s])
                if not abs(largest) < np.inf:
                    largest = real(0)
                total = real(0)
                for s in range(first[t], last[t]):
                    row[s] = exp(row[s] - largest)
                    total += row[s]
                share = real(1) / total if total != 0 else real(0)
                for s in range(first[t], last[t]):
                    row[s] *= share
                    value = v[b, s, h]
                    for c in range(C):
                        out[c] += row[s] * value[c]


@compiled
def attend_by_loops_backward(how, dy, heads, dheads):
    """Fill in the gradients of queries, keys and values."""
    _, first, last, _, scale = how
    q, k, v, weights = heads
    dq, dk, dv = dheads
    B, T, H, C = q.shape
    real = q.dtype.type
    dweights = np.empty(weights.shape[-1], q.dtype)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                query, row, dout, dquery = q[b, t, h], weights[b, h, t], dy[b, t, h], dq[b, t, h]
                dquery[:] = 0
                along = real(0)
                for s in range(first[t], last[t]):
                    value, dvalue = v[b, s, h], dv[b, s, h]
                    dweight = real(0)
                    for c in range(C):
                        dweight += dout[c] * value[c]
                    for c in range(C):
                        dvalue[c] += row[s] * dout[c]
                    dweights[s] = dweight
                    along += row[s] * dweight
                for s in range(first[t], last[t]):
                    dscore = row[s] * (dweights[s] - along) * real(scale)
                    key, dkey = k[b, s, h], dk[b, s, h]
                    for c in range(C):
                        dquery[c] += dscore * key[c]
                    for c in range(C):
                        dkey[c] += dscore * query[c]
