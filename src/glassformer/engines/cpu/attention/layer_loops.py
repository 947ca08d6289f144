"""A fused self-attention layer, so that several cores do not meet in Python between its products.

Matrices are in C order and heads lie in memory as (B, T, H, C); an empty bias or rotation is none. What is computed and
what is kept is what `layers.Attention` says. The arguments:

    plan      what `HeadPlan` has, as a plain tuple; the address of the strategy, forward or backward; that of
              what turns heads, 0 for nothing, and whether in pairs of neighbors; by which cosines and sines
    params    matrices and biases of query, key, value and output
    record    q, k, v, weights (B, H, T, T), and mixtures
"""

import numpy as np

from ..blas import gemm
from ..compile import call, compiled
from .strategies import HeadPlan


@compiled
def attend_layer(plan, x, params, record, y):
    """Fill in the record for x (N, D), and y = mixed output."""
    given, strategy, turning, rotation = plan
    heads = HeadPlan(*given)
    ws, bs = params
    q, k, v, weights, mixed = record
    rows = (x.shape[0], ws[0].shape[1])
    multiply(heads.gemm, x, ws[0], bs[0], q.reshape(rows))
    multiply(heads.gemm, x, ws[1], bs[1], k.reshape(rows))
    multiply(heads.gemm, x, ws[2], bs[2], v.reshape(rows))
    _turn(turning, q, rotation, 1)
    _turn(turning, k, rotation, 1)
    call(strategy, (heads, (q, k, v, weights), mixed))
    multiply(heads.gemm, mixed.reshape(rows), ws[3], bs[3], y)


@compiled
def attend_layer_backward(plan, dy, x, ws, record, dx, dparams):
    """Fill in dx and the gradients of the matrices and biases."""
    given, strategy, turning, rotation = plan
    heads = HeadPlan(*given)
    q, k, v, weights, mixed = record
    dws, dbs = dparams
    real, rows = x.dtype.type, (x.shape[0], ws[0].shape[1])
    dmixed, dq = np.empty_like(q), np.empty_like(q)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    multiply_backward(heads.gemm, dy, mixed.reshape(rows), ws[3], real(0), dmixed.reshape(rows), dws[3], dbs[3])
    call(strategy, (heads, dmixed, (q, k, v, weights), (dq, dk, dv)))
    _turn(turning, dq, rotation, -1)
    _turn(turning, dk, rotation, -1)
    multiply_backward(heads.gemm, dq.reshape(rows), x, ws[0], real(0), dx, dws[0], dbs[0])
    multiply_backward(heads.gemm, dk.reshape(rows), x, ws[1], real(1), dx, dws[1], dbs[1])
    multiply_backward(heads.gemm, dv.reshape(rows), x, ws[2], real(1), dx, dws[2], dbs[2])


@compiled
def _turn(turning, x, rotation, direction):
    """Turn heads by a rotation, forward (1) or back (−1)."""
    address, neighbors = turning
    if address != 0:
        call(address, (x, rotation[0], rotation[1], x.dtype.type(direction), neighbors))


@compiled
def multiply(address, x, w, b, y):
    """Fill in y (N, O) = x w + b."""
    inputs, outputs = w.shape
    zero = w.dtype.type(0)
    gemm(
        address, False, False, x.shape[0], outputs, inputs, x.ctypes.data, inputs, w.ctypes.data, outputs, zero,
        y.ctypes.data, outputs,
    )  # fmt: skip
    if b.size:
        for n in range(y.shape[0]):
            row = y[n]
            for i in range(outputs):
                row[i] += b[i]


@compiled
def multiply_backward(address, dy, x, w, beta, dx, dw, db):
    """Turn dx into dy wᵀ + beta · dx; fill in dw = xᵀ dy, and db = Σ dy unless it is empty."""
    inputs, outputs = w.shape
    N, zero = dy.shape[0], w.dtype.type(0)
    dout, matrix = dy.ctypes.data, w.ctypes.data
    gemm(address, False, True, N, inputs, outputs, dout, outputs, matrix, outputs, beta, dx.ctypes.data, inputs)
    gemm(address, True, False, inputs, outputs, N, x.ctypes.data, inputs, dout, outputs, zero, dw.ctypes.data, outputs)
    if db.size:
        db[:] = 0
        for n in range(N):
            row = dy[n]
            for i in range(outputs):
                db[i] += row[i]
