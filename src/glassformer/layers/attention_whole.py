"""Self-attention in one call of a compiled kernel, where there is one for it.

`Attention.forward` and `Attention.backward` say the same in the words of the ops, and do everything else: masks, biases
on the scores, dropout, shared keys, tiles, other types than the kernel's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, Tree
from ..engine import kernel
from ..ops.attention import AttentionSaved, default_scale
from ..ops.linear import LinearSaved
from ..ops.position import RotarySaved

if TYPE_CHECKING:
    from .attention import Attention

_PARTS = ("query", "key", "value", "output")


def forward(layer: Attention, params: Tree, x: Array, rotation: tuple[Array, Array] | None) -> Any:
    """Return y and the parts of its record: what was read, the rotation, what attended, what the output read."""
    run = kernel("self_attention", x)
    if run is None or not fits(layer, params, x, rotation):
        return None
    B, T, _ = x.shape
    q, k, v, mixed = (np.empty((B, T, layer.heads, layer.channels), x.dtype) for _ in range(4))
    weights, y = np.empty((B, layer.heads, T, T), x.dtype), np.empty(x.shape, x.dtype)
    settings = layer.pattern, layer.pairing, _scale(layer, q)
    if not run(*settings, x, *_weights(params, x), rotation, q, k, v, weights, mixed, y):
        return None
    by_head = [array.swapaxes(1, 2) for array in (q, k, v)]
    attend = AttentionSaved(by_head[0], by_head[1], by_head[2], None, weights, None)
    turned = None if rotation is None else RotarySaved(*rotation)
    return y, LinearSaved(x, None, None), turned, attend, LinearSaved(mixed.reshape(B, T, -1), None, None)


def backward(layer: Attention, params: Tree, saved: Any, dy: Array) -> Any:
    """Return dx and the gradients, None where the record is not one of `forward`'s."""
    run = kernel("self_attention_backward", dy)
    x, attend = saved.query.x, saved.attend
    if run is None or saved.key is not None or not isinstance(attend, AttentionSaved) or attend.keep is not None:
        return None
    if attend.bias is not None or dy.shape != x.shape or not is_plain(dy, x.dtype):
        return None
    rotation = None if saved.rotation is None else (saved.rotation.cos, saved.rotation.sin)
    q, k, v = (array.swapaxes(1, 2) if array.ndim == 4 else array for array in attend[:3])
    if not fits(layer, params, x, rotation) or not all(map(is_plain, (q, k, v, attend.weights), [x.dtype] * 4)):
        return None
    mixed = saved.output.x
    (B, T, _), H, C = x.shape, layer.heads, layer.channels
    if not is_plain(mixed, x.dtype) or mixed.shape != (B, T, H * C) or attend.weights.shape != (B, H, T, T):
        return None
    if not q.shape == k.shape == v.shape == (B, T, H, C):
        return None
    ws, bs = _weights(params, x)
    dws, dbs = tuple(np.empty_like(w) for w in ws), tuple(np.empty_like(b) for b in bs)
    dx = np.empty(x.shape, x.dtype)
    heads = q, k, v, attend.weights, mixed.reshape(q.shape)
    if not run(layer.pattern, layer.pairing, _scale(layer, q), dy, x, ws, rotation, *heads, dx, dws, dbs):
        return None
    grads = {
        name: {"w": dw, "b": db} if "b" in params[name] else {"w": dw}
        for name, dw, db in zip(_PARTS, dws, dbs, strict=True)
    }
    return dx, grads


def fits(layer: Attention, params: Tree, x: Array, rotation: tuple[Array, Array] | None) -> bool:
    """Tell whether a layer, its parameters and what it reads are such as the kernel takes."""
    kind = getattr(x, "dtype", None)
    if layer.tile is not None or layer.key_heads != layer.heads or layer.pattern.stride is not None:
        return False
    if not is_plain(x, kind) or x.ndim != 3 or not x.size or x.shape[-1] != layer.width:
        return False
    angles = (x.shape[1], layer.channels // 2)
    if rotation is not None and not all(is_plain(y, kind) and y.shape == angles for y in rotation):
        return False
    # The kernel reads where the shapes say it should: they are never taken on trust.
    width = layer.heads * layer.channels
    shapes = {"w": (layer.width, width), "b": (width,)}, {"w": (width, layer.width), "b": (layer.width,)}
    return all(
        is_plain(array, kind) and array.shape == shapes[part == "output"].get(name)
        for part in _PARTS
        for name, array in params[part].items()
    )


def is_plain(x: Array, kind: Any) -> bool:
    """Tell whether x is NumPy's own array of this real type, in C order."""
    return type(x) is np.ndarray and x.dtype == kind and kind.char in "fd" and x.flags.c_contiguous


def _weights(params: Tree, x: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    nothing = np.empty(0, x.dtype)
    return tuple(params[name]["w"] for name in _PARTS), tuple(params[name].get("b", nothing) for name in _PARTS)


def _scale(layer: Attention, q: Array) -> float:
    return default_scale(q) if layer.scale is None else layer.scale
