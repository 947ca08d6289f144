"""The whole of a self-attention layer as one kernel, so that several cores do not meet in Python between its products.

Matrices are in C order and heads lie in memory as (B, T, H, C); an empty bias or rotation is none. What is computed and
what is kept is what `layers.Attention` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from .attention_few import attend_few, attend_few_backward
from .attention_heads import attend, attend_backward
from .attention_lanes import attend_lanes, attend_lanes_backward
from .blas import gemm
from .compile import chosen, compiled
from .position import turn

NOT, HALVES, INTERLEAVED = TURNS = range(3)
"""How queries and keys are turned: not at all; in pairs of channels, each from one half, or neighbors."""

PRODUCTS, LOOPS, LANES = WAYS = range(3)
"""How heads attend: by products of matrices; over a few keys, by loops or, where heads fit, in vector registers."""


@compiled
def self_attention(address, x, ws, bs, rotation, spans, settings, q, k, v, weights, mixed, y):
    """Fill in queries, keys, values, weights and mixtures of x (N, D), and y = mixed output."""
    rows = (x.shape[0], ws[0].shape[1])
    scale, block, way, turning = settings
    multiply(address, x, ws[0], bs[0], q.reshape(rows))
    multiply(address, x, ws[1], bs[1], k.reshape(rows))
    multiply(address, x, ws[2], bs[2], v.reshape(rows))
    _turn(turning, q, rotation, 1)
    _turn(turning, k, rotation, 1)
    _attend(way, address, q, k, v, spans, block, scale, weights, mixed)
    multiply(address, mixed.reshape(rows), ws[3], bs[3], y)


@compiled
def self_attention_backward(address, dy, x, ws, rotation, spans, settings, q, k, v, weights, mixed, dx, dws, dbs):
    """Fill in dx and the gradients of the matrices and biases."""
    kind, rows = x.dtype.type, (x.shape[0], ws[0].shape[1])
    scale, block, way, turning = settings
    dmixed, dq = np.empty_like(q), np.empty_like(q)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    multiply_backward(address, dy, mixed.reshape(rows), ws[3], kind(0), dmixed.reshape(rows), dws[3], dbs[3])
    _attend_backward(way, address, dmixed, q, k, v, weights, spans, block, scale, dq, dk, dv)
    _turn(turning, dq, rotation, -1)
    _turn(turning, dk, rotation, -1)
    multiply_backward(address, dq.reshape(rows), x, ws[0], kind(0), dx, dws[0], dbs[0])
    multiply_backward(address, dk.reshape(rows), x, ws[1], kind(1), dx, dws[1], dbs[1])
    multiply_backward(address, dv.reshape(rows), x, ws[2], kind(1), dx, dws[2], dbs[2])


def _turn(turning, x, rotation, direction):
    """Turn heads by a rotation, forward (1) or back (−1), in the way of TURNS that the type of `turning` stands for."""


@overload(_turn)
def _chosen_turn(turning, x, rotation, direction):
    interleaved = chosen(turning) == INTERLEAVED

    def none(turning, x, rotation, direction):
        pass

    def by_angles(turning, x, rotation, direction):
        turn(x, rotation[0], rotation[1], x.dtype.type(direction), interleaved)

    return by_angles if chosen(turning) else none


def _attend(way, address, q, k, v, spans, block, scale, weights, mixed):
    """Let all heads attend in the way of WAYS that the type of `way` stands for, see `compile.choice`."""


def _attend_backward(way, address, dmixed, q, k, v, weights, spans, block, scale, dq, dk, dv):
    """Fill in the gradients of queries, keys and values."""


@overload(_attend)
def _chosen(way, address, q, k, v, spans, block, scale, weights, mixed):
    few: Any = {LOOPS: attend_few, LANES: attend_lanes}.get(chosen(way))

    def by_products(way, address, q, k, v, spans, block, scale, weights, mixed):
        attend(address, q, k, v, spans[0], spans[1], block, scale, weights, mixed)

    def of_few(way, address, q, k, v, spans, block, scale, weights, mixed):
        few(q, k, v, spans[0], spans[1], scale, weights, mixed)

    return by_products if few is None else of_few


@overload(_attend_backward)
def _chosen_backward(way, address, dmixed, q, k, v, weights, spans, block, scale, dq, dk, dv):
    few: Any = {LOOPS: attend_few_backward, LANES: attend_lanes_backward}.get(chosen(way))

    def by_products(way, address, dmixed, q, k, v, weights, spans, block, scale, dq, dk, dv):
        attend_backward(address, dmixed, q, k, v, weights, spans[0], spans[1], block, scale, dq, dk, dv)

    def of_few(way, address, dmixed, q, k, v, weights, spans, block, scale, dq, dk, dv):
        few(dmixed, q, k, v, weights, spans[0], spans[1], scale, dq, dk, dv)

    return by_products if few is None else of_few


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
    slope, matrix = dy.ctypes.data, w.ctypes.data
    gemm(address, False, True, N, inputs, outputs, slope, outputs, matrix, outputs, beta, dx.ctypes.data, inputs)
    gemm(address, True, False, inputs, outputs, N, x.ctypes.data, inputs, slope, outputs, zero, dw.ctypes.data, outputs)
    if db.size:
        db[:] = 0
        for n in range(N):
            row = dy[n]
            for i in range(outputs):
                db[i] += row[i]
