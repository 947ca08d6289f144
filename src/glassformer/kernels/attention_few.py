"""Attention over a few tokens: one loop per head, because matrix products of this size cost more to call than to do."""

from __future__ import annotations

import numpy as np

from .compile import compiled, exp, maximum


@compiled
def attend_few(q, k, v, first, last, scale, weights, y):
    """Fill in the weights (B, H, T, S) and the mixtures y for heads that lie in memory as (B, T, H, C)."""
    B, T, H, C = q.shape
    kind = q.dtype.type
    for b in range(B):
        for h in range(H):
            for t in range(T):
                query, row, out = q[b, t, h], weights[b, h, t], y[b, t, h]
                row[:] = 0
                out[:] = 0
                largest = kind(-np.inf)
                for s in range(first[t], last[t]):
                    key = k[b, s, h]
                    score = kind(0)
                    for c in range(C):
                        score += query[c] * key[c]
                    row[s] = score * kind(scale)
                    largest = maximum(largest, row[s])
                if not abs(largest) < np.inf:
                    largest = kind(0)
                total = kind(0)
                for s in range(first[t], last[t]):
                    row[s] = exp(row[s] - largest)
                    total += row[s]
                share = kind(1) / total if total != 0 else kind(0)
                for s in range(first[t], last[t]):
                    row[s] *= share
                    value = v[b, s, h]
                    for c in range(C):
                        out[c] += row[s] * value[c]


@compiled
def attend_few_backward(dy, q, k, v, weights, first, last, scale, dq, dk, dv):
    """Fill in the gradients of `attend_few`; dk and dv start at zero."""
    B, T, H, C = q.shape
    kind = q.dtype.type
    dweights = np.empty(weights.shape[-1], q.dtype)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                query, row, slope, dquery = q[b, t, h], weights[b, h, t], dy[b, t, h], dq[b, t, h]
                dquery[:] = 0
                along = kind(0)
                for s in range(first[t], last[t]):
                    value, dvalue = v[b, s, h], dv[b, s, h]
                    dweight = kind(0)
                    for c in range(C):
                        dweight += slope[c] * value[c]
                    for c in range(C):
                        dvalue[c] += row[s] * slope[c]
                    dweights[s] = dweight
                    along += row[s] * dweight
                for s in range(first[t], last[t]):
                    dscore = row[s] * (dweights[s] - along) * kind(scale)
                    key, dkey = k[b, s, h], dk[b, s, h]
                    for c in range(C):
                        dquery[c] += dscore * key[c]
                    for c in range(C):
                        dkey[c] += dscore * query[c]
