"""A block in one call of a compiled kernel, where there is one for it.

`Block.forward` and `Block.backward` say the same in the words of its layers, and do everything else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..arrays import Array, Tree
from ..engine import kernel
from ..ops.attention import AttentionSaved
from ..ops.linear import LinearSaved
from ..ops.norm import LayerNormSaved
from ..ops.position import RotarySaved
from .attention import AttentionRecord
from .attention_whole import is_plain
from .norm import LayerNorm

if TYPE_CHECKING:
    from .block import Block

_NORMS = ("attention_norm", "feed_forward_norm")
_RECORD = {*_NORMS, "attention", "feed_forward", "output"}

Shape: TypeAlias = tuple[int, ...]
Parameters: TypeAlias = tuple[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]]
"""Gammas and betas; matrices; biases. An empty bias is none, a beta of zeros stands for none."""


class Whole(NamedTuple):
    """A block that the kernel takes: its width, heads, channels and hidden width, and the matrices that it has."""

    sizes: tuple[int, int, int, int]
    matrices: tuple[tuple[str, str, Shape], ...]


def whole(block: Block) -> Whole | None:
    """Return what the kernel must know of a block, None where it has something that the kernel has not."""
    attention, feed_forward = block.attention, block.feed_forward
    if block.norm_position != "pre" or block.cross_attention is not None or not isinstance(block.norm, LayerNorm):
        return None
    if attention.tile is not None or attention.key_heads != attention.heads or attention.pattern.stride is not None:
        return None
    D, F, inner = attention.width, feed_forward.hidden, attention.heads * attention.channels
    if feed_forward.gated or feed_forward.width != D:
        return None
    matrices = [("attention", name, (D, inner)) for name in ("query", "key", "value")]
    matrices += [("attention", "output", (inner, D)), ("feed_forward", "up", (D, F)), ("feed_forward", "down", (F, D))]
    return Whole((D, attention.heads, attention.channels, F), tuple(matrices))


def forward(block: Block, params: Tree, x: Array, rotation: tuple[Array, Array] | None) -> Any:
    """Return the result and the record of a block, None where there is no kernel for it."""
    run, of = kernel("whole_block", x), block.whole
    if run is None or of is None or not _reads(of, x, rotation):
        return None
    parameters = _parameters(of, params, x.dtype)
    if parameters is None:
        return None
    shapes = _record_shapes(*x.shape[:2], *of.sizes)
    h, mean, rstd, q, k, v, weights, mixed, y, h2, mean2, rstd2, up, act = [np.empty(s, x.dtype) for s in shapes]
    z = np.empty(x.shape, x.dtype)
    record = (h, mean, rstd), (q, k, v, weights, mixed, y), (h2, mean2, rstd2, up, act)
    settings = block.attention, block.feed_forward.activation, block.norm.eps
    if not run(*settings, rotation, x, *parameters, *record, z):
        return None
    attend = AttentionSaved(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2), None, weights, None)
    turned = None if rotation is None else RotarySaved(*rotation)
    output = LinearSaved(mixed.reshape(*x.shape[:2], -1), None, None)
    saved = {
        "attention_norm": LayerNormSaved(x, mean, rstd, None, None),
        "attention": AttentionRecord(LinearSaved(h, None, None), None, None, turned, attend, output),
        "feed_forward_norm": LayerNormSaved(y, mean2, rstd2, None, None),
        "feed_forward": {
            "up": LinearSaved(h2, None, None),
            "activation": up,
            "down": LinearSaved(act, None, None),
        },
        "output": z,
    }
    return z, saved


def backward(block: Block, params: Tree, saved: Tree, dz: Array) -> Any:
    """Return dx and the gradients of a block, None where the record is not such as `forward` makes."""
    run, of = kernel("whole_block_backward", dz), block.whole
    if run is None or of is None or not saved.keys() <= _RECORD:
        return None
    norm, attention = saved["attention_norm"], saved["attention"]
    rotation = None if attention.rotation is None else (attention.rotation.cos, attention.rotation.sin)
    if attention.key is not None or not isinstance(norm, LayerNormSaved) or not _reads(of, norm.x, rotation):
        return None
    x, kind = norm.x, norm.x.dtype
    record, parameters = _record(of, saved, x), _parameters(of, params, kind)
    if record is None or parameters is None or dz.shape != x.shape or not is_plain(dz, kind):
        return None
    norms, ws, _ = parameters
    dx = np.empty(x.shape, kind)
    slopes = tuple([tuple([np.empty(p.shape, kind) for p in part]) for part in parameters])
    if not run(block.attention, block.feed_forward.activation, rotation, dz, x, norms, ws, *record, dx, *slopes):
        return None
    return dx, _gradients(of, params, *slopes)


def _gradients(of: Whole, params: Tree, dnorms: Any, dws: Any, dbs: Any) -> Tree:
    grads: dict[str, Tree] = {name: {} for name in ("attention_norm", "attention", "feed_forward_norm", "feed_forward")}
    for name, dgamma, dbeta in zip(_NORMS, dnorms[0::2], dnorms[1::2], strict=True):
        grads[name] = {"gamma": dgamma, "beta": dbeta} if "beta" in params[name] else {"gamma": dgamma}
    for (part, name, _), dw, db in zip(of.matrices, dws, dbs, strict=True):
        grads[part][name] = {"w": dw, "b": db} if "b" in params[part][name] else {"w": dw}
    return grads


def _reads(of: Whole, x: Array, rotation: tuple[Array, Array] | None) -> bool:
    """Tell whether x (B, T, D) and its rotation are such as the kernel takes."""
    if type(x) is not np.ndarray or x.ndim != 3 or not x.size or x.shape[2] != of.sizes[0] or not is_plain(x, x.dtype):
        return False
    if rotation is None:
        return True
    angles = x.shape[1], of.sizes[2] // 2
    return all(is_plain(y, x.dtype) and y.shape == angles for y in rotation)


# The kernel reads and writes where the shapes say it should: they are never taken on trust.


def _parameters(of: Whole, params: Tree, kind: np.dtype) -> Parameters | None:
    """Return the parameters, None where one is not such as the kernel takes."""
    nothing, zeros = _constants(kind, of.sizes[0])
    norms: list[Array] = []
    ws: list[Array] = []
    bs: list[Array] = []
    for name in _NORMS:
        own = params[name]
        gamma, beta = own["gamma"], own.get("beta", zeros)
        if not _is(gamma, kind, zeros.shape) or not _is(beta, kind, zeros.shape) or len(own) > 2 - (beta is zeros):
            return None  # something else stands beside them
        norms += gamma, beta
    for part, name, shape in of.matrices:
        own = params[part][name]
        w, b = own["w"], own.get("b", nothing)
        if not _is(w, kind, shape) or len(own) > 2 - (b is nothing) or not (b is nothing or _is(b, kind, shape[1:])):
            return None
        ws.append(w)
        bs.append(b)
    return tuple(norms), tuple(ws), tuple(bs)


def _record(of: Whole, saved: Tree, x: Array) -> Any:
    """Return what `forward` made, None where something else has taken its place."""
    attention, feed_forward, norm, norm2 = (saved[n] for n in ("attention", "feed_forward", *_NORMS))
    attend = attention.attend
    if not isinstance(attend, AttentionSaved) or attend.keep is not None or attend.bias is not None:
        return None
    q, k, v = (heads.swapaxes(1, 2) for heads in attend[:3])
    mixed = attention.output.x.reshape(q.shape)
    first, attended = (attention.query.x, norm.mean, norm.rstd), (q, k, v, attend.weights, mixed, norm2.x)
    second = (feed_forward["up"].x, norm2.mean, norm2.rstd, feed_forward["activation"], feed_forward["down"].x)
    shapes = _record_shapes(*x.shape[:2], *of.sizes)
    for array, shape in zip((*first, *attended, *second), shapes, strict=True):
        if not _is(array, x.dtype, shape):
            return None
    return first, attended, second


def _is(x: Array, kind: np.dtype, shape: Shape) -> bool:
    """Tell whether x is NumPy's own array of this type and shape, in C order."""
    return type(x) is np.ndarray and x.shape == shape and x.dtype == kind and x.flags.c_contiguous


@lru_cache
def _record_shapes(B: int, T: int, D: int, H: int, C: int, F: int) -> tuple[Shape, ...]:
    """Return the shapes of the two norms' results and statistics, of the heads, and of the hidden layer."""
    heads, row, number, hidden = (B, T, H, C), (B, T, D), (B, T, 1), (B, T, F)
    attended = heads, heads, heads, (B, H, T, T), heads, row
    return (row, number, number, *attended, row, number, number, hidden, hidden)


@lru_cache
def _constants(kind: np.dtype, width: int) -> tuple[Array, Array]:
    """Return what stands for no bias, and for no beta."""
    return np.empty(0, kind), np.zeros(width, kind)
