"""Attention by cuDNN's fused kernels, for half precision on NVIDIA's GPUs.

They compute what `attention_tiled` computes, in tiles that never leave the chip. `attention_tiled` calls them by
itself wherever they can stand for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..arrays import Array, namespace
from ..backend import is_jax
from .attention import default_scale
from .gpu import runs_kernels
from .mask import Pattern

_WIDEST_HEAD = 128  # channels; a multiple of 8


class FusedSaved(NamedTuple):
    q: Array  # (..., H, T, C)
    k: Array  # (..., K, S, C)
    v: Array  # (..., K, S, C)
    bias: None
    mask: None
    pull_back: Any  # the kernel's own gradient, which holds y and the sums of its rows


def can_fuse(
    q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None, pattern: Pattern, rate: float
) -> bool:
    """Tell whether the kernels cover a case: self-attention, full, causal or in a causal window, without dropout."""
    if not is_jax(q) or bias is not None or mask is not None or rate > 0 or q.ndim != 4:
        return False
    if any(x.dtype.name not in ("bfloat16", "float16") for x in (q, k, v)) or q.shape[-2] != k.shape[-2]:
        return False
    if pattern.prefix or pattern.stride is not None or (pattern.window is not None and not pattern.causal):
        return False
    return q.shape[-1] % 8 == 0 and q.shape[-1] <= _WIDEST_HEAD and q.shape[-2] > 1 and runs_kernels()


def attention_fused(
    q: Array, k: Array, v: Array, *, pattern: Pattern, scale: float | None = None
) -> tuple[Array, FusedSaved]:
    """Return what `attention_tiled` returns, and how to pull gradients back through the kernel."""
    import jax

    xp = namespace(q)
    settings: dict[str, Any] = {"is_causal": pattern.causal, "scale": default_scale(q) if scale is None else scale}
    if pattern.window is not None:
        settings["local_window_size"] = (pattern.window - 1, 0)

    def attend(q: Array, k: Array, v: Array) -> Array:
        # The kernel wants heads after positions, as they lie in memory.
        q, k, v = (xp.swapaxes(x, -3, -2) for x in (q, k, v))
        return xp.swapaxes(jax.nn.dot_product_attention(q, k, v, implementation="cudnn", **settings), -3, -2)

    y, pull_back = jax.vjp(attend, q, k, v)
    return y, FusedSaved(q, k, v, None, None, pull_back)


def attention_fused_backward(dy: Array, saved: FusedSaved) -> tuple[Array, Array, Array, None]:
    """Gradient of `attention_fused`: the kernel's own."""
    return (*saved.pull_back(dy), None)
