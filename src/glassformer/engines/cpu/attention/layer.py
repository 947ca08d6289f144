"""The kernel of `layers.Attention`: self-attention in one call, so that cores do not meet in Python between products.

Everything else is left to the layer as written: masks, biases on the scores, dropout, shared keys, tiles, a cache,
other types than the loops'. In the loops, matrices are in C order and heads lie in memory as (B, T, H, C); an empty
bias is none. Names in the programs:

    x, y          (B, T, D): what the layer reads and returns
    w· b·         matrix and bias of query, key, value and output (q k v o); d stands before gradients
    q k v         heads (B, T, H, C); then weights (B, H, T, T), and mixtures
    cos sin       (T, C/2), if heads are turned
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ....arrays import Array, Tree
from ....dispatch import replaces
from ....layers import Attention, AttentionRecord, InputGrads, Linear
from ....ops.attention import AttentionSaved
from ....ops.linear import LinearSaved
from ....ops.position import RotarySaved
from ..compile import are_arrays, is_array
from ..cores import cores
from ..fused import Parameters, empty_like, linear_places, once_for_each
from ..position import PAIRINGS
from ..products import gemm_address
from ..program import ATTEND, ATTEND_BACKWARD, MULTIPLY, MULTIPLY_BACKWARD, TURN, Program, Step, kernel_address, program
from .strategies import HeadPlan, are_worth_sharing, has_products, head_plan, strategy_address, strategy_for

Rotation = tuple[Array, Array] | None
PARTS = ("query", "key", "value", "output")
NAMES = "x wq wk wv wo bq bk bv bo q k v weights mixed y cos sin"
NAMES_BACKWARD = "dy x wq wk wv wo q k v weights mixed dx dwq dwk dwv dwo dbq dbk dbv dbo dmixed dq dk dv cos sin"


class FusedAttention(NamedTuple):
    """What the loops must know of a layer."""

    layer: Attention
    parameters: Parameters
    program: Callable[..., Program | None]
    """By B, T, type, whether there is one core, heads are turned, and direction."""


@once_for_each
def fused_attention(layer: Attention) -> FusedAttention | None:
    """Return what the loops must know of a layer, None where it has something that they have not."""
    places = linear_places(layer.parts, PARTS)
    if places is None or layer.tile is not None or layer.key_heads != layer.heads or layer.pattern.stride is not None:
        return None
    if layer.pairing not in PAIRINGS:
        return None

    @lru_cache(maxsize=64)
    def find(B: int, T: int, dtype: np.dtype, alone: bool, turned: bool, *, backward: bool = False) -> Program | None:
        plan = plan_of(layer, B, T, dtype, alone)
        if plan is None:
            return None
        steps = attention_steps_backward if backward else attention_steps
        names = NAMES_BACKWARD if backward else NAMES
        return program(steps(layer, plan, B, dtype, turned), names, dtype, (plan.first, plan.last))

    return FusedAttention(layer, Parameters(places, (0, 0), PARTS), find)


def plan_of(layer: Attention, B: int, T: int, dtype: np.dtype, alone: bool) -> HeadPlan | None:
    """Return how the loops attend; None where they do not, or heads had better be shared out."""
    if not B or not T or not has_products(dtype) or (not alone and are_worth_sharing(B, B * layer.heads * T * T)):
        return None
    # Of a feed-forward layer four times as wide, which takes the same address.
    gemm = gemm_address(dtype, 8 * B * T * layer.width**2, alone=alone)
    scale = 1 / math.sqrt(layer.channels) if layer.scale is None else float(layer.scale)
    return head_plan(layer.pattern, T, T, gemm, scale)


def attention_steps(
    layer: Attention, plan: HeadPlan, B: int, dtype: np.dtype, turned: bool, x: str = "x", y: str = "y"
) -> list[Step]:
    linear = [linear_step(plan, B, layer.parts[part], dtype) for part in PARTS]
    return [
        *(step._replace(arrays=f"{x} w{name} b{name} {name}") for step, name in zip(linear, "qkv", strict=False)),
        *(_turn_step(layer, plan, B, dtype, name, 1) for name in "qk" if turned),
        _attend_step(layer, plan, B, dtype, "q k v weights mixed"),
        linear[3]._replace(arrays=f"mixed wo bo {y}"),
    ]


def attention_steps_backward(
    layer: Attention,
    plan: HeadPlan,
    B: int,
    dtype: np.dtype,
    turned: bool,
    x: str = "x",
    dy: str = "dy",
    dx: str = "dx",
) -> list[Step]:
    linear = [linear_step(plan, B, layer.parts[part], dtype, backward=True) for part in PARTS]
    back = [
        step._replace(arrays=f"d{name} {x} w{name} {dx} dw{name} db{name}", factor=float(name != "q"))
        for step, name in zip(linear, "qkv", strict=False)
    ]
    return [
        linear[3]._replace(arrays=f"{dy} mixed wo dmixed dwo dbo"),
        _attend_step(layer, plan, B, dtype, "dmixed q k v weights dq dk dv", backward=True),
        *(_turn_step(layer, plan, B, dtype, name, -1) for name in ("dq", "dk") if turned),
        *back,
    ]


def linear_step(
    plan: HeadPlan, B: int, linear: Linear, dtype: np.dtype, arrays: str = "", *, backward: bool = False
) -> Step:
    kind = MULTIPLY_BACKWARD if backward else MULTIPLY
    sizes = plan.gemm, B * len(plan.first), linear.inputs, linear.outputs, linear.outputs * linear.bias
    return Step(kind, kernel_address(kind, dtype), sizes, arrays)


def _turn_step(layer: Attention, plan: HeadPlan, B: int, dtype: np.dtype, heads: str, direction: int) -> Step:
    sizes = B, len(plan.first), layer.heads, layer.channels, layer.pairing == "interleaved"
    return Step(TURN, kernel_address(TURN, dtype), sizes, f"{heads} cos sin", direction)


def _attend_step(
    layer: Attention, plan: HeadPlan, B: int, dtype: np.dtype, arrays: str, *, backward: bool = False
) -> Step:
    T = len(plan.first)
    address = strategy_address(strategy_for(dtype, T, layer.channels), plan, dtype, backward=backward)
    sizes = plan.gemm, B, T, layer.heads, layer.channels, plan.run
    return Step(ATTEND_BACKWARD if backward else ATTEND, address, sizes, arrays, plan.scale)


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
    found = program_for(fused, self, x, rotation)
    parameters = found and fused.parameters.gather(params, x.dtype)
    if found is None or parameters is None:
        return NotImplemented
    record = [np.empty(shape, x.dtype) for shape in record_shapes(fused, *x.shape[:2])]
    y = np.empty(x.shape, x.dtype)
    found.run(x, *parameters[0], *parameters[1], *record, y, *(rotation or ()))
    return y, written(x, rotation, *record)


@replaces(Attention.backward, Linear)
def attention_backward(self: Attention, params: Tree, saved: AttentionRecord, dy: Array) -> Any:
    fused = fused_attention(self)
    if fused is None or saved.key is not None:
        return NotImplemented
    x = saved.query.x
    found = program_for(fused, self, x, saved.rotation, backward=True)
    record = found and read(saved)
    if (
        found is None
        or record is None
        or not are_arrays((*record, dy), x.dtype, (*record_shapes(fused, *x.shape[:2]), x.shape))
    ):
        return NotImplemented
    if (parameters := fused.parameters.gather(params, x.dtype, frozen=False)) is None:
        return NotImplemented
    dx = np.empty(x.shape, x.dtype)
    dparams = empty_like(parameters)
    inner = inner_gradients(record)
    found.run(dy, x, *parameters[0], *record, dx, *dparams[0], *dparams[1], *inner, *(saved.rotation or ()))
    return InputGrads(dx), fused.parameters.tree(dparams)


def program_for(
    fused: Any, layer: Attention, x: Array, rotation: Rotation, *, backward: bool = False
) -> Program | None:
    """Return the program of a fused layer for x (B, T, D); None where there is none."""
    if type(x) is not np.ndarray or x.ndim != 3 or not x.flags.c_contiguous or layer.width != x.shape[2]:
        return None
    (B, T, _), dtype = x.shape, x.dtype
    if rotation is not None:
        angles = T, layer.channels // 2
        if layer.channels % 2 or not all(is_array(table, dtype, angles) for table in rotation):
            return None
    return fused.program(B, T, dtype, cores() == 1, rotation is not None, backward=backward)


def inner_gradients(record: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return memory for the gradients of mixtures, queries, keys and values; the last two start at zero."""
    q, k, v = record[:3]
    return np.empty_like(q), np.empty_like(q), np.zeros_like(k), np.zeros_like(v)


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
