"""Attention in half precision: by cuDNN's kernels where they take it, else all weights at once.

cuDNN keeps no weights, only the logarithm of each row's sum; whoever asks the record for them has them computed.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from ... import ops
from ...arrays import Array, LazyArray, cast, check_broadcast, check_mask, is_half, namespace, unbroadcast, widen
from ...dispatch import replaces
from ...ops.attention import AttentionSaved, check_heads, default_scale, grouped, ungrouped
from ...ops.attention_tiled import TiledSaved
from ...ops.dropout import check_rate, dropped
from ...ops.mask import FULL, Pattern
from .elementary import matmul_wide
from .fused import cudnn

Gradients = tuple[Array, Array, Array, Array | None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CudnnWeights(LazyArray):
    """Attention weights (B, H, T, S) that no memory holds, and what the backward pass takes in their place.

    y         (B, H, T, C)
    log_sum   (B, H, T) log Σ exp of the scores of each row
    """

    q: Array
    k: Array
    y: Array
    log_sum: Array
    pattern: Pattern = field(metadata={"static": True})
    scale: float = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.q.shape[:-1], self.k.shape[-2])

    @property
    def dtype(self) -> Any:
        return self.q.dtype

    def compute(self) -> Array:
        """Return softmax(q kᵀ · scale), as `attention` gives it."""
        return _weights(self.q, self.k, None, None, self.pattern, self.scale)


@replaces(ops.attention, ops.attention_backward)
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
) -> tuple[Array, AttentionSaved]:
    """Attend with products of half precision; the softmax is computed in float32."""
    if not (is_half(q) and is_half(k) and is_half(v)):
        return NotImplemented
    check_heads(q, k, v)
    check_rate(rate)
    scale = default_scale(q) if scale is None else scale
    if cudnn.covers(q, k, v, bias, mask, pattern, 0.0 if key is None else rate):
        y, log_sum = cudnn.forward(q, k, v, pattern=pattern, scale=scale)
        return y, AttentionSaved(q, k, v, None, CudnnWeights(q, k, y, log_sum, pattern=pattern, scale=scale), None)
    weights = _weights(q, k, bias, mask, pattern, scale)
    mixing, keep = weights, None
    if key is not None and rate > 0:
        mixing, keep = ops.dropout(weights, key, rate=rate)
    y = ungrouped(grouped(mixing, v) @ v, q)
    return y, AttentionSaved(q, k, v, bias, weights, keep)


@replaces(ops.attention_backward, ops.attention)
def attention_backward(
    dy: Array, saved: AttentionSaved, *, pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None
) -> Gradients:
    """Gradient of `attention`, with products of half precision too."""
    q, k, v, bias, weights, keep = saved
    if isinstance(weights, CudnnWeights):
        how: dict[str, Any] = {"pattern": weights.pattern, "scale": weights.scale}
        return (*cudnn.backward(dy, q, k, v, weights.y, weights.log_sum, **how), None)
    if isinstance(weights, LazyArray) or not all(is_half(x) for x in (dy, q, k, v, weights)):
        return NotImplemented
    xp = namespace(q)
    scale = default_scale(q) if scale is None else scale
    dy = grouped(dy, v)
    mixing = weights if keep is None else dropped(weights, keep, rate=rate)
    dv = xp.matrix_transpose(grouped(mixing, v)) @ dy
    dweights = ungrouped(dy @ xp.matrix_transpose(v), weights)
    if keep is not None:
        dweights = dropped(dweights, keep, rate=rate)
    dscores = ops.softmax_backward(dweights, weights)
    dbias = None if bias is None else cast(unbroadcast(widen(dscores), tuple(bias.shape)), bias.dtype)
    dscores = grouped(dscores * scale, k)
    dq = ungrouped(dscores @ k, q)
    dk = xp.matrix_transpose(dscores) @ grouped(q, k)
    return dq, dk, dv, dbias


@replaces(ops.attention_tiled, ops.attention_tiled_backward)
def attention_tiled(
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
    tile: int = 128,
) -> tuple[Array, TiledSaved]:
    """Attend by cuDNN, whose tiles never leave the chip."""
    if not cudnn.covers(q, k, v, bias, mask, pattern, 0.0 if key is None else rate):
        return NotImplemented
    check_heads(q, k, v)
    y, log_sum = cudnn.forward(q, k, v, pattern=pattern, scale=default_scale(q) if scale is None else scale)
    return y, TiledSaved(q, k, v, None, None, None, y, log_sum[..., None])


@replaces(ops.attention_tiled_backward, ops.attention_tiled)
def attention_tiled_backward(
    dy: Array,
    saved: TiledSaved,
    *,
    pattern: Pattern = FULL,
    rate: float = 0.0,
    scale: float | None = None,
    tile: int = 128,
) -> Gradients:
    """Gradient of `attention_tiled`, by cuDNN."""
    q, k, v, bias, mask, key, y, log_sum = saved
    if not is_half(dy) or not cudnn.covers(q, k, v, bias, mask, pattern, 0.0 if key is None else rate):
        return NotImplemented
    scale = default_scale(q) if scale is None else scale
    return (*cudnn.backward(dy, q, k, v, y, log_sum[..., 0], pattern=pattern, scale=scale), None)


def _weights(q: Array, k: Array, bias: Array | None, mask: Array | None, pattern: Pattern, scale: float) -> Array:
    """Return the weights (..., H, T, S) in the type of q, from scores in float32."""
    xp = namespace(q)
    shape = (*q.shape[:-1], k.shape[-2])
    scores = (matmul_wide(grouped(q, k), xp.matrix_transpose(k)) * np.float32(scale)).reshape(shape)
    if bias is not None:
        check_broadcast(bias, shape, what="the bias")
        scores = scores + bias
    if mask is not None:
        check_mask(mask, shape)
    if not pattern.is_full:
        allowed = xp.asarray(pattern.dense(q.shape[-2], k.shape[-2]))
        mask = allowed if mask is None else mask & allowed
    return cast(ops.softmax(scores, mask=mask)[0], q.dtype)
