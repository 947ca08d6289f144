"""Attention head by head, some queries at a time: product, softmax and product while their numbers are still at hand.

Heads lie in memory as (B, T, H, C); query t sees its keys first[t] … last[t], which never move back.
"""

from __future__ import annotations

import numpy as np

from .blas import gemm
from .compile import compiled
from .softmax import soften_row, soften_row_backward


@compiled
def attend(address, q, k, v, first, last, block, scale, weights, y):
    """Fill in the weights (B, H, T, S) and the mixtures y."""
    B, T, H, C = q.shape
    S = k.shape[1]
    kind = q.dtype.type
    for b in range(B):
        for h in range(H):
            for start in range(0, T, block):
                stop = min(start + block, T)
                low, high = first[start], last[stop - 1]
                rows, seen = stop - start, high - low
                query, key, value = q[b, start, h:].ctypes.data, k[b, low, h:].ctypes.data, v[b, low, h:].ctypes.data
                weight = weights[b, h, start, low:].ctypes.data
                gemm(address, False, True, rows, seen, C, query, H * C, key, H * C, kind(0), weight, S)
                for t in range(start, stop):
                    row = weights[b, h, t]
                    row[: first[t]] = 0
                    row[last[t] :] = 0
                    soften_row(row[first[t] : last[t]], kind(scale))
                out = y[b, start, h:].ctypes.data
                gemm(address, False, False, rows, C, seen, weight, S, value, H * C, kind(0), out, H * C)


@compiled
def attend_backward(address, dy, q, k, v, weights, first, last, block, scale, dq, dk, dv):
    """Fill in the gradients of `attend`; dk and dv start at zero."""
    B, T, H, C = q.shape
    S, D = k.shape[1], H * C
    kind = q.dtype.type
    dscores = np.empty((block, S), q.dtype)
    for b in range(B):
        for h in range(H):
            for start in range(0, T, block):
                stop = min(start + block, T)
                low, high = first[start], last[stop - 1]
                rows, seen = stop - start, high - low
                slope, query, dquery = dy[b, start, h:].ctypes.data, q[b, start, h:].ctypes.data, dq[b, start, h:]
                key, dkey = k[b, low, h:].ctypes.data, dk[b, low, h:].ctypes.data
                value, dvalue = v[b, low, h:].ctypes.data, dv[b, low, h:].ctypes.data
                weight, dscore = weights[b, h, start, low:].ctypes.data, dscores.ctypes.data
                gemm(address, True, False, seen, C, rows, weight, S, slope, D, kind(1), dvalue, D)
                gemm(address, False, True, rows, seen, C, slope, D, value, D, kind(0), dscore, S)
                for t in range(start, stop):
                    row = dscores[t - start, :seen]
                    row[: first[t] - low] = 0
                    row[last[t] - low :] = 0
                    inside = slice(first[t] - low, last[t] - low)
                    soften_row_backward(row[inside], weights[b, h, t, first[t] : last[t]], kind(scale))
                gemm(address, False, False, rows, C, seen, dscore, S, key, D, kind(0), dquery.ctypes.data, D)
                gemm(address, True, False, seen, C, rows, dscore, S, query, D, kind(1), dkey, D)
