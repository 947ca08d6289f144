"""Attention with all its weights.

The usual case, heads cut out of rows and no mask but that of positions, goes head by head (`attention_heads`) and skips
what cannot be seen. Everything else takes products of whole batches, with the softmax between them in place. Results
lie in memory as (B, T, H, C), so that putting the heads side by side again copies nothing.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..arrays import Array, cast, unbroadcast
from ..ops.attention import AttentionSaved, default_scale, grouped
from ..ops.dropout import dropped
from ..ops.mask import FULL, Pattern
from . import block
from . import self_attention as whole
from .attention_few import attend_few, attend_few_backward
from .attention_heads import attend, attend_backward
from .attention_lanes import attend_lanes, attend_lanes_backward
from .blas import gemm_address
from .block import ACTIVATIONS
from .compile import choice
from .cores import cores, each
from .dropout import dropout, is_key
from .layout import REAL, rows
from .memory import empty
from .softmax import soften, soften_backward, soften_biased

BLOCK = 32  # queries at a time ...
SMALL_BLOCK, SHORT = 16, 128  # ... and where there are at most SHORT keys
FEW = 16  # keys, for which products are not worth calling
WORTHWHILE = 1 << 17  # pairs of a query and a key; fewer are not worth a second core


def attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    *,
    mask: Array | None = None,
    pattern: Pattern = FULL,
    key: Array | None = None,
    rate: float = 0.0,
    scale: float | None = None,
) -> Any:
    """Stand for `ops.attention`."""
    if not _fits(q, k, v) or (q.shape[-2] > k.shape[-2] and not pattern.is_full) or not 0 <= rate < 1:
        return NotImplemented
    weights = empty((*q.shape[:-1], k.shape[-2]), q.dtype)
    scale = default_scale(q) if scale is None else scale
    drops = key is not None and rate > 0
    if drops and not is_key(key):
        return NotImplemented
    if mask is None and bias is None and not drops and _goes_by_heads(pattern, q, k, v):
        y = _heads(q.shape, q.dtype)
        _attend_heads(q, k, v, pattern, scale, weights, y)
        return y, AttentionSaved(q, k, v, bias, weights, None)
    np.matmul(grouped(q, k), k.swapaxes(-1, -2), out=grouped(weights, k))
    if not _soften(weights, bias, mask, pattern, scale):
        return NotImplemented
    mixing, keep = dropout(weights, key, rate=rate) if drops else (weights, None)
    if q.shape[-3] == k.shape[-3]:
        y = np.matmul(mixing, v, out=_heads(q.shape, q.dtype))
    else:
        y = np.matmul(grouped(mixing, v), v).reshape(q.shape)
    return y, AttentionSaved(q, k, v, bias, weights, keep)


def attention_backward(
    dy: Array, saved: AttentionSaved, *, pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None
) -> Any:
    """Stand for `ops.attention_backward`."""
    q, k, v, bias, weights, keep = saved
    if not _fits(q, k, v) or dy.shape != q.shape or dy.dtype != q.dtype or q.shape[-3] != k.shape[-3]:
        return NotImplemented
    if weights.shape != (*q.shape[:-1], k.shape[-2]) or weights.dtype != q.dtype:
        return NotImplemented
    scale = default_scale(q) if scale is None else scale
    dq, dk, dv = (_heads(x.shape, x.dtype) for x in (q, k, v))
    if bias is None and keep is None and _goes_by_heads(pattern, dy, q, k, v) and weights.flags.c_contiguous:
        dk[...] = 0
        dv[...] = 0
        _attend_heads_backward(dy, q, k, v, weights, pattern, scale, dq, dk, dv)
        return dq, dk, dv, None
    mixing = weights if keep is None else dropped(weights, keep, rate=rate)
    np.matmul(mixing.swapaxes(-1, -2), dy, out=dv)
    dscores = np.matmul(dy, v.swapaxes(-1, -2), out=empty(weights.shape, q.dtype))  # in C order whatever dy's
    if keep is not None:
        dscores = dropped(dscores, keep, rate=rate)
    T, S = weights.shape[-2:]
    soften_backward(_stacked(dscores), _stacked(weights), *_spans(FULL, T, S), 1.0)
    dbias = None if bias is None else cast(unbroadcast(dscores, tuple(bias.shape)), bias.dtype)
    dscores *= q.dtype.type(scale)
    np.matmul(dscores, k, out=dq)
    np.matmul(dscores.swapaxes(-1, -2), q, out=dk)
    return dq, dk, dv, dbias


def _attend_heads(q: Array, k: Array, v: Array, pattern: Pattern, scale: float, weights: Array, y: Array) -> None:
    address, spans, block = gemm_address(q.dtype), _spans(pattern, *weights.shape[-2:]), _block(k)
    way = _way(q, k.shape[-2])
    if way != whole.PRODUCTS:
        few = attend_lanes if way == whole.LANES else attend_few
        few(_memory(q), _memory(k), _memory(v), *spans, scale, weights, _memory(y))
        return

    def part(rows: slice) -> None:
        heads = (_memory(x)[rows] for x in (q, k, v))
        attend(address, *heads, *spans, block, scale, weights[rows], _memory(y)[rows])

    each([partial(part, rows) for rows in _shares(weights)])


def _attend_heads_backward(
    dy: Array,
    q: Array,
    k: Array,
    v: Array,
    weights: Array,
    pattern: Pattern,
    scale: float,
    dq: Array,
    dk: Array,
    dv: Array,
) -> None:
    address, spans, block = gemm_address(q.dtype), _spans(pattern, *weights.shape[-2:]), _block(k)
    way = _way(q, k.shape[-2])
    if way != whole.PRODUCTS:
        few = attend_lanes_backward if way == whole.LANES else attend_few_backward
        heads = (_memory(x) for x in (dy, q, k, v))
        few(*heads, weights, *spans, scale, *map(_memory, (dq, dk, dv)))
        return

    def part(rows: slice) -> None:
        heads = (_memory(x)[rows] for x in (dy, q, k, v))
        grads = (_memory(x)[rows] for x in (dq, dk, dv))
        attend_backward(address, *heads, weights[rows], *spans, block, scale, *grads)

    each([partial(part, rows) for rows in _shares(weights)])


def _way(q: Array, keys: int) -> int:
    """Return how heads (..., C) attend to so many keys, as one of `self_attention.WAYS`."""
    if keys > FEW:
        return whole.PRODUCTS
    return whole.LANES if q.dtype == np.float32 and q.shape[-1] % 4 == 0 else whole.LOOPS


def _shares(weights: Array) -> list[slice]:
    """Cut a batch into one part for each core, where that is worthwhile."""
    size, parts = len(weights), min(len(weights), weights.size // WORTHWHILE)
    parts = min(cores(), parts) if parts > 1 else 1
    return [slice(size * n // parts, size * (n + 1) // parts) for n in range(parts)]


def _block(k: Array) -> int:
    return SMALL_BLOCK if k.shape[-2] <= SHORT else BLOCK


@lru_cache(maxsize=256)
def _spans(pattern: Pattern, T: int, S: int) -> tuple[Array, Array]:
    first, last = pattern.spans(range(S - T, S) if T <= S else range(T), S)
    return np.ascontiguousarray(first, np.int64), np.ascontiguousarray(last, np.int64)


def _soften(weights: Array, bias: Array | None, mask: Array | None, pattern: Pattern, scale: float) -> bool:
    """Turn products of queries and keys into weights, in place; False where bias or mask do not fit."""
    T, S = weights.shape[-2:]
    if mask is None and bias is None and pattern.stride is None:
        soften(_stacked(weights), *_spans(pattern, T, S), scale)
        return True
    if mask is not None and (type(mask) is not np.ndarray or mask.dtype != np.bool_):
        return False
    if bias is not None and (type(bias) is not np.ndarray or bias.dtype.char not in REAL):
        return False
    allowed = np.True_ if pattern.is_full else pattern.dense(T, S)
    try:
        allowed = allowed if mask is None else mask & allowed
        over = [
            np.broadcast_to(x, weights.shape).reshape(_four(weights.shape))
            for x in (weights.dtype.type(0) if bias is None else np.asarray(bias, weights.dtype), allowed)
        ]
    except ValueError:
        return False
    soften_biased(weights.reshape(_four(weights.shape)), *over, scale)
    return True


def _goes_by_heads(pattern: Pattern, *heads: Array) -> bool:
    """Tell whether heads (B, H, T, C), as many of queries as of keys, lie in memory as (B, T, H, C)."""
    if pattern.stride is not None or not gemm_address(heads[0].dtype) or heads[0].shape[1:2] != heads[-1].shape[1:2]:
        return False
    return all(x.ndim == 4 and x.size and _memory(x).flags.c_contiguous for x in heads)


def _memory(heads: Array) -> Array:
    return heads.swapaxes(-3, -2)


def _fits(q: Array, k: Array, v: Array) -> bool:
    """Tell whether heads (..., H, T, C) of one real type belong together."""
    return (
        q.ndim > 2
        and q.dtype.char in REAL
        and type(q) is type(k) is type(v) is np.ndarray
        and q.dtype == k.dtype == v.dtype
        and q.ndim == k.ndim
        and k.shape == v.shape
        and q.shape[-1] == k.shape[-1] > 0
        and q.shape[:-3] == k.shape[:-3]
        and k.shape[-3] > 0
        and q.shape[-3] % k.shape[-3] == 0
    )


def _heads(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array (..., H, T, C) that lies in memory as (..., T, H, C)."""
    *lead, H, T, C = shape
    return empty((*lead, T, H, C), dtype).swapaxes(-3, -2)


def _stacked(x: Array) -> Array:
    return x.reshape(x.size // max(x.shape[-1] * x.shape[-2], 1), *x.shape[-2:])


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with exactly four axes: (B, H, T, S)."""
    lead = int(np.prod(shape[:-3]))
    return (lead, *shape[-3:])


def self_attention(
    pattern: Pattern,
    pairing: str,
    scale: float,
    x: Array,
    ws: tuple[Array, ...],
    bs: tuple[Array, ...],
    rotation: tuple[Array, Array] | None,
    *results: Array,
) -> bool:
    """Fill in all of a self-attention layer (`layers.attention_whole`); False where heads had better be shared out."""
    q = results[0]
    if not gemm_address(x.dtype) or len(_shares(results[3])) > 1:
        return False
    arguments = _rotation(rotation, x), _spans(pattern, q.shape[1], q.shape[1]), _settings(q, scale, pairing, rotation)
    whole.self_attention(gemm_address(x.dtype), rows(x), ws, bs, *arguments, *results[:-1], rows(results[-1]))
    return True


def self_attention_backward(
    pattern: Pattern,
    pairing: str,
    scale: float,
    dy: Array,
    x: Array,
    ws: tuple[Array, ...],
    rotation: tuple[Array, Array] | None,
    *arrays: Any,
) -> bool:
    """Fill in the gradients of `self_attention`; False where heads had better be shared out."""
    q, weights, (dx, dws, dbs) = arrays[0], arrays[3], arrays[-3:]
    if not gemm_address(x.dtype) or len(_shares(weights)) > 1:
        return False
    arguments = _rotation(rotation, x), _spans(pattern, q.shape[1], q.shape[1]), _settings(q, scale, pairing, rotation)
    flat = rows(dy), rows(x), ws
    whole.self_attention_backward(gemm_address(x.dtype), *flat, *arguments, *arrays[:-3], rows(dx), dws, dbs)
    return True


def _rotation(rotation: tuple[Array, Array] | None, x: Array) -> tuple[Array, Array]:
    return (np.empty((0, 0), x.dtype),) * 2 if rotation is None else rotation


def _settings(q: Array, scale: float, pairing: str, rotation: Any) -> tuple[float, int, Any, Any]:
    keys = q.shape[1]
    turning = whole.NOT if rotation is None else whole.INTERLEAVED if pairing == "interleaved" else whole.HALVES
    return scale, SMALL_BLOCK if keys <= SHORT else BLOCK, choice(_way(q, keys)), choice(turning)


def whole_block(
    layer: Any, activation: str, eps: float, rotation: Any, x: Array, norms: Any, ws: Any, bs: Any, *record: Any
) -> bool:
    """Fill in all of a block (`layers.block_whole`); False where heads had better be shared out."""
    settings = _of_block(layer, activation, rotation, x, record[1])
    if settings is None:
        return False
    block.whole_block(gemm_address(x.dtype), x, norms, ws, bs, *settings, eps, *record)
    return True


def whole_block_backward(
    layer: Any, activation: str, rotation: Any, dz: Array, x: Array, norms: Any, ws: Any, *record: Any
) -> bool:
    """Fill in the gradients of `whole_block`; False where heads had better be shared out."""
    settings = _of_block(layer, activation, rotation, x, record[1])
    if settings is None:
        return False
    block.whole_block_backward(gemm_address(x.dtype), dz, x, norms, ws, *settings, *record)
    return True


def _of_block(layer: Any, activation: str, rotation: Any, x: Array, attended: Any) -> Any:
    """Return the rotation, who sees whom, the settings of attention and the activation; None without a kernel."""
    q, weights = attended[0], attended[3]
    if not gemm_address(x.dtype) or len(_shares(weights)) > 1:
        return None
    keys, scale = q.shape[1], default_scale(q) if layer.scale is None else layer.scale
    spans, chosen = _spans(layer.pattern, keys, keys), choice(ACTIVATIONS.index(activation))
    return _rotation(rotation, x), spans, _settings(q, scale, layer.pairing, rotation), chosen
