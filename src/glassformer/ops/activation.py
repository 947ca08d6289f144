"""Activations, and the gated forms built on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..arrays import Array, cast, namespace, widen
from ..backend import logistic, normal_cdf
from ..engine import accelerated
from ..errors import ConfigError, ShapeError, did_you_mean
from .activation_fused import can_fuse, elementwise

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


@accelerated
def relu(x: Array) -> tuple[Array, Array]:
    """Keep what is positive: y = max(x, 0)."""
    return namespace(x).where(x > 0, x, namespace(x).zeros((), dtype=x.dtype)), x


@accelerated
def relu_backward(dy: Array, x: Array) -> Array:
    """Gradient of `relu`: dx = dy where x > 0, else 0 (also at x = 0, where there is no derivative)."""
    return namespace(x).where(x > 0, dy, namespace(x).zeros((), dtype=dy.dtype))


@accelerated
def gelu(x: Array) -> tuple[Array, Array]:
    """Weigh x by the chance that a standard normal variable stays below it: y = x · Φ(x), the exact (erf) form."""
    wide = widen(x)
    return cast(wide * normal_cdf(wide), x.dtype), x


@accelerated
def gelu_backward(dy: Array, x: Array) -> Array:
    """Gradient of `gelu`.

    dx = dy · (Φ(x) + x · φ(x)),   φ(x) = exp(−x²/2) / √(2π)
    """
    wide = widen(x)
    density = namespace(x).exp(-0.5 * wide * wide) * (1 / math.sqrt(2 * math.pi))
    return cast(dy * (normal_cdf(wide) + wide * density), x.dtype)


@accelerated
def gelu_tanh(x: Array) -> tuple[Array, Array]:
    """GELU as GPT-2 computes it: y = x/2 · (1 + tanh u),  u = √(2/π) · (x + 0.044715 x³).

    (1 + tanh u)/2 is the logistic of 2u, σ(2u).
    """
    if can_fuse(x):
        return elementwise(_gelu_tanh, x), x
    return cast(_gelu_tanh(widen(x)), x.dtype), x


@accelerated
def gelu_tanh_backward(dy: Array, x: Array) -> Array:
    """Gradient of `gelu_tanh`.

    dx = dy · (σ + x · σ (1 − σ) · 2u′),   σ = σ(2u),   u′ = √(2/π) · (1 + 3 · 0.044715 x²)
    """
    if can_fuse(x):
        return elementwise(_gelu_tanh_backward, x, dy)
    return cast(_gelu_tanh_backward(widen(x), widen(dy)), x.dtype)


def _gelu_tanh(x: Array) -> Array:
    return x * logistic(_gelu_tanh_inner(x))


def _gelu_tanh_backward(x: Array, dy: Array) -> Array:
    s = logistic(_gelu_tanh_inner(x))
    slope = 2 * _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x)
    return dy * (s + x * (s * (1 - s)) * slope)


def _gelu_tanh_inner(x: Array) -> Array:
    """Return 2u."""
    return 2 * _TANH_SCALE * x * (1 + _TANH_CUBIC * x * x)


@accelerated
def silu(x: Array) -> tuple[Array, Array]:
    """Weigh x by its own logistic: y = x · σ(x),  σ(x) = 1 / (1 + exp(−x))."""
    wide = widen(x)
    return cast(wide * logistic(wide), x.dtype), x


@accelerated
def silu_backward(dy: Array, x: Array) -> Array:
    """Gradient of `silu`: dx = dy · σ · (1 + x · (1 − σ))."""
    wide = widen(x)
    s = logistic(wide)
    return cast(dy * (s * (1 + wide * (1 - s))), x.dtype)


class GatedSaved(NamedTuple):
    gate: Array
    up: Array


@accelerated
def gated(gate: Array, up: Array, *, activation: str = "silu") -> tuple[Array, GatedSaved]:
    """Let one half of a feed-forward layer open and close the other: y = act(gate) · up.

    With "silu" this is SwiGLU, with "gelu" or "gelu_tanh" GEGLU, with "relu" ReGLU.
    """
    namespace(gate)
    namespace(up)
    if gate.shape != up.shape:
        raise ShapeError(
            f"gate has shape {tuple(gate.shape)} but up has {tuple(up.shape)}", hint="both need the same shape"
        )
    opened, _ = activation_pair(activation)[0](gate)
    return opened * up, GatedSaved(gate, up)


@accelerated
def gated_backward(dy: Array, saved: GatedSaved, *, activation: str = "silu") -> tuple[Array, Array]:
    """Gradient of `gated`: dgate = act′(gate) · (dy · up), dup = dy · act(gate)."""
    forward, backward = activation_pair(activation)
    opened, inner = forward(saved.gate)
    return backward(dy * saved.up, inner), dy * opened


ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "relu": (relu, relu_backward),
    "gelu": (gelu, gelu_backward),
    "gelu_tanh": (gelu_tanh, gelu_tanh_backward),
    "silu": (silu, silu_backward),
}


def activation_pair(name: str) -> tuple[Callable, Callable]:
    """Return an activation and its gradient by name."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"there is no activation {name!r}", hint=did_you_mean(name, ACTIVATIONS))
    return ACTIVATIONS[name]
