"""The kernel of `layers.Attention`: self-attention in one call.

Everything else is left to the layer as written: masks, biases on the scores, dropout, shared keys, tiles, a cache,
other types than the loops'.
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
from ..compile import address_of
from ..cores import cores
from ..fused import Matrices, empty_like, gathered, matrices_of, named, once_for_each
from ..layout import are_arrays, is_array, rows
from ..position import PAIRINGS, turn
from .layer_loops import attend_layer, attend_layer_backward
from .strategies import are_worth_sharing, has_products, head_plan, strategy_address, strategy_for

Rotation = tuple[Array, Array] | None
NO_TURN = 0, False


class FusedAttention(NamedTuple):
    """What the loops must know of a layer."""

    layer: Attention
    matrices: Matrices
    heads: int
    channels: int
    plan: Callable[[int, int, np.dtype, bool], Any]
    """By B, T, type and direction: what stands first in a plan, and whether heads had better be shared out."""


@once_for_each
def fused_attention(layer: Attention) -> FusedAttention | None:
    """Return what the loops must know of a layer, None where it has something that they have not."""
    matrices = matrices_of(layer.parts, ("query", "key", "value", "output"))
    if matrices is None or layer.tile is not None or layer.key_heads != layer.heads or layer.pattern.stride is not None:
        return None
    if layer.pairing not in PAIRINGS:
        return None
    scale = 1 / math.sqrt(layer.channels) if layer.scale is None else float(layer.scale)

    @lru_cache(maxsize=64)
    def plan(B: int, T: int, dtype: np.dtype, backward: bool) -> Any:
        if not B or not T or not has_products(dtype):
            return None
        heads, strategy = head_plan(layer.pattern, T, T, dtype, scale), strategy_for(dtype, T, layer.channels)
        # A plain tuple is handed over in half the time of a named one.
        given = tuple(heads), strategy_address(strategy, heads, dtype, backward=backward)
        return given, are_worth_sharing(B, B * layer.heads * T * T)

    return FusedAttention(layer, matrices, layer.heads, layer.channels, plan)


@replaces(Attention.forward, Linear)
def attention_forward(
    self: Attention,
    params: Tree,
    x: Array,
    memory: Array | None = None,
    bias: Array | None = None,
    *,
    mask: Array | None = None,
    rotation: Rotation = None,
    key: Array | None = None,
    cache: Any = None,
) -> Any:
    if memory is not None or bias is not None or mask is not None or cache is not None:
        return NotImplemented
    fused = fused_attention(self)
    if fused is None or (key is not None and self.dropout):
        return NotImplemented
    plan = plan_of(fused, x, rotation)
    parameters = plan and gathered(fused.matrices, params, x.dtype)
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
    parameters = gathered(fused.matrices, params, x.dtype)
    if parameters is None:
        return NotImplemented
    dx = np.empty(x.shape, x.dtype)
    dparams = empty_like(parameters)
    attend_layer_backward(plan, rows(dy), rows(x), parameters[0], record, rows(dx), dparams)
    return InputGrads(dx), named(fused.matrices, *dparams)


def plan_of(fused: FusedAttention, x: Array, rotation: Rotation, *, backward: bool = False) -> tuple[Any, ...] | None:
    """Return how the loops attend for x (B, T, D); None where they do not, or heads had better be shared out."""
    layer, _, _, C, plan = fused
    if type(x) is not np.ndarray or x.ndim != 3 or not x.flags.c_contiguous:
        return None
    (B, T, D), dtype = x.shape, x.dtype
    planned = plan(B, T, dtype, backward)
    if layer.width != D or planned is None or (planned[1] and cores() > 1):
        return None
    if rotation is None:
        return *planned[0], NO_TURN, _no_rotation(dtype)
    cos, sin = rotation
    angles = T, C // 2
    if C % 2 or not is_array(cos, dtype, angles) or not is_array(sin, dtype, angles):
        return None
    return *planned[0], _turn(layer.pairing, dtype), (cos, sin)


def record_shapes(fused: FusedAttention, B: int, T: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of q, k, v, weights and mixtures."""
    heads = B, T, fused.heads, fused.channels
    return heads, heads, heads, (B, fused.heads, T, T), heads


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


@lru_cache
def _no_rotation(dtype: np.dtype) -> tuple[Array, Array]:
    return (np.empty((0, 0), dtype),) * 2
