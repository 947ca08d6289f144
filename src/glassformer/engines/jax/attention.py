"""Attention in half precision: by cuDNN's kernels where they take it, else all weights at once.

cuDNN keeps no weights, only the logarithm of each row's sum; the record computes them when they are asked for.

JAX has cuDNN's forward and backward as two primitives. Its public function cannot replace them: it rounds the sums to
half precision, and has gradients only by differentiating, which computes all of attention once more. So the two are
imported from inside of JAX, and their signatures are read: arguments that a later version adds get the defaults of the
public function of their module, and a version that cannot be called so has no pair.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from inspect import unwrap
from typing import Any

import jax
import numpy as np

from ... import ops
from ...core.arrays import Array, LazyArray, cast, check_broadcast, check_mask, is_half, namespace
from ...core.dispatch import replaces
from ...core.reporting import log_once
from ...ops.attention import AttentionSaved, check_heads, default_scale, grouped, ungrouped
from ...ops.attention_tiled import TiledSaved
from ...ops.dropout import check_rate
from ...ops.mask import FULL, Pattern
from .elementary import matmul_wide
from .fused import runs_kernels

Gradients = tuple[Array, Array, Array, Array | None]

_WIDEST_HEAD = 128  # channels; a multiple of 8
_GIVEN = ("query", "key", "value", "activation", "fwd_output", "grad_output")
_UNUSED = ("bias", "q_seqlen", "kv_seqlen", "q_offsets", "kv_offsets", "page_table_k", "page_table_v")
_SETTINGS = {"seed": 42, "dropout_rate": 0.0, "variadic_args": (False, False), "is_training": True}
_CHOSEN = ("scale", "mask_type", "layout", "sliding_window_length")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CudnnWeights(LazyArray):
    """Attention weights (B, H, T, S) that no memory holds, and what the backward pass reads instead.

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


@replaces(ops.attention)
def attention(
    q: Array, k: Array, v: Array, bias: Array | None = None, *, mask: Array | None = None, pattern: Pattern = FULL,
    key: Array | None = None, rate: float = 0.0, scale: float | None = None,
) -> tuple[Array, AttentionSaved]:  # fmt: skip
    """Attend with products of half precision; the softmax is computed in float32."""
    if not (is_half(q) and is_half(k) and is_half(v)):
        return NotImplemented
    check_heads(q, k, v)
    check_rate(rate)
    scale = default_scale(q) if scale is None else scale
    if is_for_cudnn(q, k, v, bias, mask, pattern, 0.0 if key is None else rate):
        y, log_sum = cudnn_forward(q, k, v, pattern=pattern, scale=scale)
        return y, AttentionSaved(q, k, v, None, CudnnWeights(q, k, y, log_sum, pattern=pattern, scale=scale), None)
    weights = _weights(q, k, bias, mask, pattern, scale)
    mixing, keep = weights, None
    if key is not None and rate > 0:
        mixing, keep = ops.dropout(weights, key, rate=rate)
    y = ungrouped(grouped(mixing, v) @ v, q)
    return y, AttentionSaved(q, k, v, bias, weights, keep)


@replaces(ops.attention_backward)
def attention_backward(
    dy: Array, saved: AttentionSaved, *, pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None
) -> Gradients:
    q, k, v, bias, weights, _ = saved
    if isinstance(weights, CudnnWeights):
        settings: dict[str, Any] = {"pattern": weights.pattern, "scale": weights.scale}
        return (*cudnn_backward(dy, q, k, v, weights.y, weights.log_sum, **settings), None)
    if isinstance(weights, LazyArray) or not all(is_half(x) for x in (dy, q, k, v, weights)):
        return NotImplemented
    # As written, but not widened.
    dq, dk, dv, dbias = unwrap(ops.attention_backward)(dy, saved, rate=rate, scale=scale)
    return dq, dk, dv, None if bias is None else cast(dbias, bias.dtype)


@replaces(ops.attention_tiled)
def attention_tiled(
    q: Array, k: Array, v: Array, bias: Array | None = None, *, mask: Array | None = None, pattern: Pattern = FULL,
    key: Array | None = None, rate: float = 0.0, scale: float | None = None, tile: int = 128,
) -> tuple[Array, TiledSaved]:  # fmt: skip
    """Attend by cuDNN, whose tiles never leave the chip."""
    if not is_for_cudnn(q, k, v, bias, mask, pattern, 0.0 if key is None else rate):
        return NotImplemented
    check_heads(q, k, v)
    y, log_sum = cudnn_forward(q, k, v, pattern=pattern, scale=default_scale(q) if scale is None else scale)
    return y, TiledSaved(q, k, v, None, None, None, y, log_sum[..., None])


@replaces(ops.attention_tiled_backward)
def attention_tiled_backward(
    dy: Array, saved: TiledSaved, *,
    pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None, tile: int = 128,
) -> Gradients:  # fmt: skip
    q, k, v, bias, mask, key, y, log_sum = saved
    if not is_half(dy) or not is_for_cudnn(q, k, v, bias, mask, pattern, 0.0 if key is None else rate):
        return NotImplemented
    scale = default_scale(q) if scale is None else scale
    return (*cudnn_backward(dy, q, k, v, y, log_sum[..., 0], pattern=pattern, scale=scale), None)


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


# --- cuDNN -----------------------------------------------------------------------------------------------------------


def is_for_cudnn(q: Array, k: Array, v: Array, bias: Any, mask: Any, pattern: Pattern, rate: float) -> bool:
    """Return whether cuDNN takes a case: self-attention, full, causal or in a causal window, without dropout."""
    if bias is not None or mask is not None or rate > 0 or q.ndim != 4 or q.shape[-2] != k.shape[-2]:
        return False
    if any(x.dtype.name not in ("bfloat16", "float16") for x in (q, k, v)):
        return False
    if pattern.prefix or pattern.stride is not None or (pattern.window is not None and not pattern.causal):
        return False
    fits = q.shape[-1] % 8 == 0 and q.shape[-1] <= _WIDEST_HEAD and q.shape[-2] > 1
    return fits and runs_kernels() and cudnn_pair() is not None


def cudnn_forward(q: Array, k: Array, v: Array, *, pattern: Pattern, scale: float) -> tuple[Array, Array]:
    """Return y (B, H, T, C), and log Σ exp of the scores of every row, (B, H, T)."""
    y, log_sum = cudnn_pair()[0]({"query": q, "key": k, "value": v}, pattern, scale)
    return _swapped(y), log_sum


def cudnn_backward(
    dy: Array, q: Array, k: Array, v: Array, y: Array, log_sum: Array, *, pattern: Pattern, scale: float
) -> tuple[Array, Array, Array]:
    """Return the gradients of q, k and v, given what `cudnn_forward` returned."""
    arrays = {"query": q, "key": k, "value": v, "activation": log_sum, "fwd_output": y, "grad_output": dy}
    dq, dk, dv = cudnn_pair()[1](arrays, pattern, scale)[:3]
    return _swapped(dq), _swapped(dk), _swapped(dv)


@cache
def cudnn_pair() -> Any:
    """Return what calls the two primitives; None, and say why, where this version of JAX has no such pair."""
    try:
        from jax._src.cudnn import fused_attention_stablehlo as home

        masks, layout = (home.MaskType.NO_MASK, home.MaskType.CAUSAL), home.AttentionLayout.BTNH.value
        public = inspect.signature(home.dot_product_attention).parameters.values()
        # Of arguments that stand for several, as an empty tuple does, there is none to give.
        added = {argument.name: argument.default for argument in public if argument.default is not argument.empty}
        pair = [
            _calling(primitive, list(inspect.signature(function).parameters), added, masks, layout)
            for primitive, function in (
                (home._dot_product_attention_fwd_p_wrapper, home._dot_product_attention_fwd_impl),
                (home._dot_product_attention_bwd_p_wrapper, home._dot_product_attention_bwd_impl),
            )
        ]
        _try(pair)
    except (ImportError, AttributeError, TypeError) as error:
        what = "attention on the GPU keeps all weights, which takes more time and memory"
        log_once(f"JAX {jax.__version__}: cuDNN's attention cannot be used ({error}): {what}")
        return None
    return pair


def _calling(
    primitive: Any, names: list[str], added: dict[str, Any], masks: tuple[Any, Any], layout: int
) -> Callable[..., Any]:
    """Return a function that gives a primitive the arguments that it names, in its order."""
    operands = [name for name in names if name in (*_GIVEN, *_UNUSED)]
    if unknown := set(names) - {*operands, *_SETTINGS, *_CHOSEN, *added}:
        raise TypeError(f"it wants {', '.join(sorted(unknown))}")

    def run(arrays: dict[str, Array], pattern: Pattern, scale: float) -> Any:
        nothing = jax.numpy.zeros(0, dtype=arrays["query"].dtype)
        # The kernels want heads after positions, as they lie in memory; the sums have no channels to turn.
        turned = {name: x if x.ndim < 4 else _swapped(x) for name, x in arrays.items()}
        chosen = {"scale": scale, "mask_type": masks[pattern.causal], "layout": layout}
        settings = {**added, **_SETTINGS, **chosen, "sliding_window_length": pattern.window}
        return primitive.bind(
            *(turned.get(name, nothing) for name in operands),
            **{name: settings[name] for name in names if name not in operands and settings[name] != ()},
        )

    return run


def _try(pair: list[Callable[..., Any]]) -> None:
    """Check the shapes that both primitives return, which computes nothing."""
    x = jax.ShapeDtypeStruct((1, 1, 2, 8), "bfloat16")
    y, log_sum = jax.eval_shape(lambda x: pair[0]({"query": x, "key": x, "value": x}, FULL, 1.0), x)
    some = {"query": x, "key": x, "value": x, "activation": log_sum, "fwd_output": x, "grad_output": x}
    grads = jax.eval_shape(lambda some: pair[1](some, FULL, 1.0), some)
    if any(x.shape != y.shape for x in grads):
        raise TypeError("its gradients have another shape")


def _swapped(x: Array) -> Array:
    return x.swapaxes(-3, -2)
