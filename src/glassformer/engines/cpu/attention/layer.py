"""The kernel of `layers.Attention`: self-attention in one call, so that cores do not meet in Python between products.

Everything else is left to the layer as written: masks, biases on the scores, dropout, shared keys, tiles, a cache,
other types than the loops'. In the loops, matrices are in C order and heads lie in memory as (B, T, H, C); an empty
bias or rotation is none:

    plan      what `HeadPlan` has, as a plain tuple; the address of the strategy, forward or backward; that of
              what turns heads, 0 for nothing, and whether in pairs of neighbors; by which cosines and sines
    params    matrices and biases of query, key, value and output
    record    q, k, v, weights (B, H, T, T), and mixtures
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from ....arrays import Array, Tree
from ....dispatch import replaces
from ....layers import Attention, AttentionRecord, InputGrads, Linear
from ....ops.attention import AttentionSaved
from ....ops.linear import LinearSaved
from ....ops.position import RotarySaved
from ..compile import REAL, address_of, are_arrays, call, compiled, is_array, rows
from ..cores import cores
from ..fused import Parameters, empty_like, linear_places, once_for_each
from ..position import PAIRINGS, turn
from ..products import gemm, gemm_address
from .strategies import HeadPlan, are_worth_sharing, has_products, head_plan, strategy_address, strategy_for

Rotation = tuple[Array, Array] | None
PARTS = ("query", "key", "value", "output")
NO_TURN = 0, False
NO_ROTATION = {dtype: (np.empty((0, 0), dtype),) * 2 for dtype in REAL}


class FusedAttention(NamedTuple):
    """What the loops must know of a layer."""

    layer: Attention
    parameters: Parameters
    plan: Callable[[int, int, np.dtype, bool, bool], Any]
    """By B, T, type, direction and whether there is one core: what stands first in a plan, and whether heads had better
    be shared out."""


@once_for_each
def fused_attention(layer: Attention) -> FusedAttention | None:
    """Return what the loops must know of a layer, None where it has something that they have not."""
    places = linear_places(layer.parts, PARTS)
    if places is None or layer.tile is not None or layer.key_heads != layer.heads or layer.pattern.stride is not None:
        return None
    if layer.pairing not in PAIRINGS:
        return None
    scale = 1 / math.sqrt(layer.channels) if layer.scale is None else float(layer.scale)

    @lru_cache(maxsize=64)
    def plan(B: int, T: int, dtype: np.dtype, backward: bool, alone: bool) -> Any:
        if not B or not T or not has_products(dtype):
            return None
        # Of a feed-forward layer four times as wide, which takes the same address.
        gemm = gemm_address(dtype, 8 * B * T * layer.width**2, alone=alone)
        heads, strategy = head_plan(layer.pattern, T, T, gemm, scale), strategy_for(dtype, T, layer.channels)
        # A plain tuple is handed over in half the time of a named one.
        given = tuple(heads), strategy_address(strategy, heads, dtype, backward=backward)
        return given, not alone and are_worth_sharing(B, B * layer.heads * T * T)

    return FusedAttention(layer, Parameters(places, (0, 0), PARTS), plan)


@replaces(Attention.forward, Linear)
def attention_forward(
    self: Attention, params: Tree, x: Array, memory: Array | None = None, bias: Array | None = None, *,
    mask: Array | None = None, rotation: Rotation = None, key: Array | None = None, cache: Any = None,
) -> Any:  # fmt: skip
    if memory is not None or bias is not None or mask is not None or cache is not None:
        return NotImplemented
    fused = fused_attention(self)
    if fused is None or (key is not None and self.dropout):
        return NotImplemented
    plan = plan_of(fused, x, rotation)
    parameters = plan and fused.parameters.gather(params, x.dtype)
    if parameters is None:
        return NotImplemented
    record = [np.empty(shape, x.dtype) for shape in record_shapes(fused, *x.shape[:2])]
    y = np.empty(x.shape, x.dtype)
    attend_layer(plan, rows(x), parameters, tuple(record), rows(y))
    return y, written(x, rotation, *record)


@replaces(Attention.backward, Linear)
def attention_backward(self: Attention, params: Tree, saved: AttentionRecord, dy: Array) -> Any:
    fused = fused_attention(self)
    if fused is None or saved.key is not None:
        return NotImplemented
    x = saved.query.x
    plan = plan_of(fused, x, saved.rotation, backward=True)
    record = plan and read(saved)
    if record is None or not are_arrays((*record, dy), x.dtype, (*record_shapes(fused, *x.shape[:2]), x.shape)):
        return NotImplemented
    if (parameters := fused.parameters.gather(params, x.dtype, frozen=False)) is None:
        return NotImplemented
    dx = np.empty(x.shape, x.dtype)
    dparams = empty_like(parameters)
    attend_layer_backward(plan, rows(dy), rows(x), parameters[0], record, rows(dx), dparams)
    return InputGrads(dx), fused.parameters.tree(dparams)


def plan_of(fused: FusedAttention, x: Array, rotation: Rotation, *, backward: bool = False) -> tuple[Any, ...] | None:
    """Return how the loops attend for x (B, T, D); None where they do not, or heads had better be shared out."""
    layer, _, plan = fused
    if type(x) is not np.ndarray or x.ndim != 3 or not x.flags.c_contiguous:
        return None
    (B, T, D), dtype = x.shape, x.dtype
    planned = plan(B, T, dtype, backward, cores() == 1)
    if layer.width != D or planned is None or planned[1]:
        return None
    if rotation is None:
        return *planned[0], NO_TURN, NO_ROTATION[dtype]
    cos, sin = rotation
    angles = T, layer.channels // 2
    if layer.channels % 2 or not is_array(cos, dtype, angles) or not is_array(sin, dtype, angles):
        return None
    return *planned[0], _turn(layer.pairing, dtype), (cos, sin)


def record_shapes(fused: FusedAttention, B: int, T: int) -> tuple[tuple[int, ...], ...]:
    heads = B, T, fused.layer.heads, fused.layer.channels
    return heads, heads, heads, (B, fused.layer.heads, T, T), heads


def written(
    x: Array, rotation: Rotation, q: Array, k: Array, v: Array, weights: Array, mixed: Array
) -> AttentionRecord:
    """Return the record that the layer as written makes, of what the loops filled in."""
    attend = AttentionSaved(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2), None, weights, None)
    turned = None if rotation is None else RotarySaved(*rotation)
    output = LinearSaved(mixed.reshape(*x.shape[:2], -1), None, None)
    return AttentionRecord(LinearSaved(x, None, None), None, None, turned, attend, output)


def read(saved: AttentionRecord) -> tuple[Array, ...] | None:
    """Return what `written` put into a record, if it looks like that; its shapes are still to be checked."""
    attend = saved.attend
    if not isinstance(attend, AttentionSaved) or attend.keep is not None or attend.bias is not None:
        return None
    q, k, v = [array.swapaxes(1, 2) if array.ndim == 4 else array for array in attend[:3]]
    mixed = saved.output.x
    return (q, k, v, attend.weights, mixed.reshape(q.shape)) if mixed.size == q.size else None


@lru_cache
def _turn(pairing: str, dtype: np.dtype) -> tuple[int, bool]:
    """Return the address of what turns heads, and whether it turns pairs of neighbors."""
    real = from_dtype(dtype)
    table = types.Array(real, 2, "C")
    return address_of(turn, types.Array(real, 4, "C"), table, table, real, types.boolean), pairing == "interleaved"


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
    _turn_heads(turning, q, rotation, 1)
    _turn_heads(turning, k, rotation, 1)
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
    _turn_heads(turning, dq, rotation, -1)
    _turn_heads(turning, dk, rotation, -1)
    multiply_backward(heads.gemm, dq.reshape(rows), x, ws[0], real(0), dx, dws[0], dbs[0])
    multiply_backward(heads.gemm, dk.reshape(rows), x, ws[1], real(1), dx, dws[1], dbs[1])
    multiply_backward(heads.gemm, dv.reshape(rows), x, ws[2], real(1), dx, dws[2], dbs[2])


@compiled
def _turn_heads(turning, x, rotation, direction):
    address, neighbors = turning
    if address != 0:
        call(address, (x, rotation[0], rotation[1], x.dtype.type(direction), neighbors))


@compiled
def multiply(address, x, w, b, y):
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
