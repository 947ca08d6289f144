"""A block in one call of a compiled kernel, where there is one for it.

`Block.forward` and `Block.backward` say the same in the words of its layers, and do everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, Tree
from ..engine import kernel
from ..ops.attention import AttentionSaved
from ..ops.linear import LinearSaved
from ..ops.norm import LayerNormSaved
from ..ops.position import RotarySaved
from . import attention_whole
from .attention import AttentionRecord
from .attention_whole import is_plain
from .norm import LayerNorm

if TYPE_CHECKING:
    from .block import Block

_ATTENTION, _FEED_FORWARD = ("query", "key", "value", "output"), ("up", "down")
_NORMS = ("attention_norm", "feed_forward_norm")


def forward(block: Block, params: Tree, x: Array, rotation: tuple[Array, Array] | None) -> Any:
    """Return the result and the record of a block, None where there is no kernel for it."""
    run = kernel("whole_block", x)
    if run is None or not _fits(block, params, x, rotation):
        return None
    B, T, _ = x.shape
    attention, kind = block.attention, x.dtype
    first = [np.empty(x.shape, kind), *(np.empty((B, T, 1), kind) for _ in range(2))]
    heads = [np.empty((B, T, attention.heads, attention.channels), kind) for _ in range(4)]
    q, k, v, mixed = heads
    weights, y, z = np.empty((B, attention.heads, T, T), kind), np.empty(x.shape, kind), np.empty(x.shape, kind)
    second = [np.empty(x.shape, kind), *(np.empty((B, T, 1), kind) for _ in range(2))]
    second += [np.empty((B, T, block.feed_forward.hidden), kind) for _ in range(2)]
    attended = (q, k, v, weights, mixed, y)
    if not run(attention, block.feed_forward.activation, block.norm.eps, rotation, x, *_parameters(params, x),
               first, attended, second, z):  # fmt: skip
        return None
    by_head = [array.swapaxes(1, 2) for array in (q, k, v)]
    attend = AttentionSaved(by_head[0], by_head[1], by_head[2], None, weights, None)
    turned = None if rotation is None else RotarySaved(*rotation)
    output = LinearSaved(mixed.reshape(B, T, -1), None, None)
    saved = {
        "attention_norm": LayerNormSaved(x, first[1], first[2], None, None),
        "attention": AttentionRecord(LinearSaved(first[0], None, None), None, None, turned, attend, output),
        "feed_forward_norm": LayerNormSaved(y, second[1], second[2], None, None),
        "feed_forward": {
            "up": LinearSaved(second[0], None, None),
            "activation": second[3],
            "down": LinearSaved(second[4], None, None),
        },
        "output": z,
    }
    return z, saved


def backward(block: Block, params: Tree, saved: Tree, dz: Array) -> Any:
    """Return dx and the gradients of a block, None where the record is not one of `forward`'s."""
    run = kernel("whole_block_backward", dz)
    if run is None or "attention_norm" not in saved or not isinstance(saved["attention_norm"], LayerNormSaved):
        return None
    x, attention, feed_forward = saved["attention_norm"].x, saved["attention"], saved["feed_forward"]
    rotation = None if attention.rotation is None else (attention.rotation.cos, attention.rotation.sin)
    attend = attention.attend
    if not isinstance(attend, AttentionSaved) or attend.keep is not None or attend.bias is not None:
        return None
    if not _fits(block, params, x, rotation) or any("dropout" in name for name in saved) or dz.shape != x.shape:
        return None
    heads = [array.swapaxes(1, 2) for array in attend[:3]]
    first = [attention.query.x, *saved["attention_norm"][1:3]]
    attended = (*heads, attend.weights, attention.output.x.reshape(heads[0].shape), saved["feed_forward_norm"].x)
    second = [
        feed_forward["up"].x,
        *saved["feed_forward_norm"][1:3],
        feed_forward["activation"],
        feed_forward["down"].x,
    ]
    if not all(is_plain(array, x.dtype) for array in (dz, *first, *attended, *second)):
        return None
    dx = np.empty(x.shape, x.dtype)
    norms, ws, bs = _parameters(params, x)
    dnorms = tuple(np.zeros_like(array) for array in norms)
    dws, dbs = tuple(np.empty_like(w) for w in ws), tuple(np.empty_like(b) for b in bs)
    if not run(block.attention, block.feed_forward.activation, rotation, dz, x, norms, ws,
               first, attended, second, dx, dnorms, dws, dbs):  # fmt: skip
        return None
    return dx, _gradients(params, dnorms, dws, dbs)


def _gradients(params: Tree, dnorms: Any, dws: Any, dbs: Any) -> Tree:
    linear = [
        {"w": dw, "b": db} if "b" in params[part][name] else {"w": dw}
        for (part, name), dw, db in zip(_linear_parts(), dws, dbs, strict=True)
    ]
    norms = [
        {"gamma": dgamma, "beta": dbeta} if "beta" in params[name] else {"gamma": dgamma}
        for name, dgamma, dbeta in zip(_NORMS, dnorms[0::2], dnorms[1::2], strict=True)
    ]
    return {
        "attention_norm": norms[0],
        "attention": dict(zip(_ATTENTION, linear[:4], strict=True)),
        "feed_forward_norm": norms[1],
        "feed_forward": dict(zip(_FEED_FORWARD, linear[4:], strict=True)),
    }


def _linear_parts() -> list[tuple[str, str]]:
    return [("attention", name) for name in _ATTENTION] + [("feed_forward", name) for name in _FEED_FORWARD]


def _parameters(params: Tree, x: Array) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]]:
    """Return gammas and betas, matrices, and biases; an empty bias is none, a beta of zeros stands for none."""
    nothing, zeros = np.empty(0, x.dtype), np.zeros(x.shape[-1], x.dtype)
    norms = tuple(params[name].get(part, zeros) for name in _NORMS for part in ("gamma", "beta"))
    linear = [params[part][name] for part, name in _linear_parts()]
    return norms, tuple(part["w"] for part in linear), tuple(part.get("b", nothing) for part in linear)


def _fits(block: Block, params: Tree, x: Array, rotation: tuple[Array, Array] | None) -> bool:
    feed_forward = block.feed_forward
    if block.norm_position != "pre" or block.cross_attention is not None or feed_forward.gated:
        return False
    if feed_forward.width != block.attention.width:
        return False
    if not isinstance(block.norm, LayerNorm) or not attention_whole.fits(
        block.attention, params["attention"], x, rotation
    ):
        return False
    D, F = feed_forward.width, feed_forward.hidden
    shapes = {"up": {"w": (D, F), "b": (F,)}, "down": {"w": (F, D), "b": (D,)}}
    arrays: list[tuple[Array, Any]] = [(a, (D,)) for name in _NORMS for a in params[name].values()]
    arrays += [(a, shapes[n].get(part)) for n in _FEED_FORWARD for part, a in params["feed_forward"][n].items()]
    return all(is_plain(array, x.dtype) and array.shape == shape for array, shape in arrays)
