"""What an optimizer does to one array, as pure functions; `training.optimizers` says when and with which settings.

Optimizers are not differentiated, so these have no backward. `out` names arrays that a kernel may write its results to,
which may be the arguments themselves; the functions as written here always return new arrays.
"""

from __future__ import annotations

from typing import Any

from ..arrays import Array, namespace
from ..engine import accelerated


@accelerated
def adam_update(
    p: Array,
    g: Array,
    mean: Array,
    square: Array,
    *,
    rate: Any,
    root: Any,
    beta1: float,
    beta2: float,
    eps: float,
    penalty: float = 0.0,
    shrink: Any = 1.0,
    out: tuple[Array, Array, Array] | None = None,
) -> tuple[Array, Array, Array]:
    """Move p by the running mean of its gradient over the root of its running square; return p, mean and square.

        g ← g + penalty · p      m ← β₁ m + (1 − β₁) g      s ← β₂ s + (1 − β₂) g²
        p ← shrink · p − rate · m / (√s / root + eps)

    rate and root hold the corrections for averages that start at zero: lr/(1 − β₁ᵗ) and √(1 − β₂ᵗ).
    """
    g = g + penalty * p if penalty else g
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * (g * g)
    return p * shrink - rate * mean / (namespace(p).sqrt(square) / root + eps), mean, square


@accelerated
def lion_update(
    p: Array,
    g: Array,
    mean: Array,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    shrink: Any = 1.0,
    out: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:
    """Move p by lr in the direction of an average; return p and the mean.

    p ← shrink · p − lr · sign(β₁ m + (1 − β₁) g)      m ← β₂ m + (1 − β₂) g
    """
    way = namespace(p).sign(beta1 * mean + (1 - beta1) * g)
    return p * shrink - lr * way, beta2 * mean + (1 - beta2) * g


@accelerated
def sum_of_squares(x: Array) -> Array:
    """Return Σ x²."""
    return namespace(x).sum(x * x)
