"""cuDNN's attention, forward and backward called as a pair.

JAX has both as primitives, beside the function that it offers, which would find the second from the first by itself.
They are taken from inside of JAX, so their arguments are matched by name: where a version has other ones, there is no
pair, and nobody calls it.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from ....arrays import Array
from ....ops.mask import Pattern
from . import runs_kernels

_WIDEST_HEAD = 128  # channels; a multiple of 8
_GIVEN = ("query", "key", "value", "activation", "fwd_output", "grad_output")
_UNUSED = ("bias", "q_seqlen", "kv_seqlen", "q_offsets", "kv_offsets", "page_table_k", "page_table_v")
_SETTINGS = {"seed": 42, "dropout_rate": 0.0, "variadic_args": (False, False), "is_training": True}
_CHOSEN = ("scale", "mask_type", "layout", "sliding_window_length")


def covers(q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None, pattern: Pattern, rate: float) -> bool:
    """Tell whether the kernels take a case: self-attention, full, causal or in a causal window, without dropout."""
    if bias is not None or mask is not None or rate > 0 or q.ndim != 4 or q.shape[-2] != k.shape[-2]:
        return False
    if any(x.dtype.name not in ("bfloat16", "float16") for x in (q, k, v)):
        return False
    if pattern.prefix or pattern.stride is not None or (pattern.window is not None and not pattern.causal):
        return False
    fits = q.shape[-1] % 8 == 0 and q.shape[-1] <= _WIDEST_HEAD and q.shape[-2] > 1
    return fits and runs_kernels() and pair() is not None


def forward(q: Array, k: Array, v: Array, *, pattern: Pattern, scale: float) -> tuple[Array, Array]:
    """Return y (B, H, T, C), and log Σ exp of the scores of every row, (B, H, T)."""
    found = pair()
    assert found is not None
    y, log_sum = found[0]({"query": q, "key": k, "value": v}, pattern, scale)
    return _turned(y), log_sum


def backward(
    dy: Array, q: Array, k: Array, v: Array, y: Array, log_sum: Array, *, pattern: Pattern, scale: float
) -> tuple[Array, Array, Array]:
    """Return the gradients of q, k and v, given what `forward` returned."""
    found = pair()
    assert found is not None
    arrays = {"query": q, "key": k, "value": v, "activation": log_sum, "fwd_output": y, "grad_output": dy}
    dq, dk, dv = found[1](arrays, pattern, scale)[:3]
    return _turned(dq), _turned(dk), _turned(dv)


@cache
def pair() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return what calls the two primitives, or None where this version of JAX has no such pair."""
    try:
        from jax._src.cudnn import fused_attention_stablehlo as home

        both = [
            (home._dot_product_attention_fwd_p_wrapper, home._dot_product_attention_fwd_impl),
            (home._dot_product_attention_bwd_p_wrapper, home._dot_product_attention_bwd_impl),
        ]
        masks, layout = (home.MaskType.NO_MASK, home.MaskType.CAUSAL), home.AttentionLayout.BTNH.value
    except (ImportError, AttributeError):
        return None
    known = {*_GIVEN, *_UNUSED, *_SETTINGS, *_CHOSEN}
    names = [list(inspect.signature(function).parameters) for _, function in both]
    if any(not known.issuperset(found) for found in names):
        return None
    calls = [_call(primitive, own, masks, layout) for (primitive, _), own in zip(both, names, strict=True)]
    return calls[0], calls[1]


def _call(primitive: Any, names: list[str], masks: tuple[Any, Any], layout: int) -> Callable[..., Any]:
    """Return a function that gives a primitive the arguments that it names, in its order."""

    def run(arrays: dict[str, Array], pattern: Pattern, scale: float) -> Any:
        nothing = jax.numpy.zeros(0, dtype=arrays["query"].dtype)
        # The kernels want heads after positions, as they lie in memory; the sums have no channels to turn.
        turned = {name: x if x.ndim < 4 else _turned(x) for name, x in arrays.items()}
        chosen = {"scale": scale, "mask_type": masks[pattern.causal], "layout": layout}
        settings = {**_SETTINGS, **chosen, "sliding_window_length": pattern.window}
        return primitive.bind(
            *(turned.get(name, nothing) for name in names if name in (*_GIVEN, *_UNUSED)),
            **{name: settings[name] for name in names if name in settings},
        )

    return run


def _turned(x: Array) -> Array:
    """Swap heads and positions."""
    return x.swapaxes(-3, -2)
