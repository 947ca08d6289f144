"""Attention to many keys, head by head, some queries at a time: products by BLAS, and the softmax between them.

A run of queries is done with while its numbers are still in the cache. See `strategies` for the arguments.
"""

import numpy as np

from ..blas import gemm
from ..compile import compiled
from ..softmax import softmax_row, softmax_row_backward


@compiled
def attend_by_products(plan, heads, y):
    """Fill in the weights and the mixtures y."""
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
    """Fill in the gradients of queries, keys and values."""
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
