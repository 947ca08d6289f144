"""The updates of optimizers for one array, as pure functions; `training.optimizers` says when and with which settings.

Both methods here divide out the size of the gradient, which differs by orders of magnitude between a table of which a
step touches few rows and a gain that every token uses: one learning rate then suits all arrays. Both follow a running
average instead of the last gradient, because a batch is a small sample and what varies from batch to batch is noise.

Optimizers are not differentiated, so these have no backward.
"""

from typing import Any

from ..core.arrays import Array, namespace
from ..core.dispatch import dispatched


@dispatched
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
) -> tuple[Array, Array, Array]:
    """Move p by the running mean of its gradient over the root of its running square; return p, mean and square.

    All arrays have the shape of p (Kingma and Ba 2015; with `shrink`, Loshchilov and Hutter 2019).

        g ← g + penalty · p      m ← β₁ m + (1 − β₁) g      s ← β₂ s + (1 − β₂) g²
        p ← shrink · p − rate · m / (√s / root + eps)

    A number whose gradient keeps its sign moves by about lr a step; one whose gradient only trembles stays, as its mean
    is small beside its root mean square. m and s start at zero: after t steps of the same g they are (1 − β₁ᵗ) g and
    (1 − β₂ᵗ) g². rate and root hold what puts that right, lr/(1 − β₁ᵗ) and √(1 − β₂ᵗ). Without them the first step
    would be (1 − β₁)/√(1 − β₂) times too large, a factor of 3.2 for 0.9 and 0.999.

    Weight decay comes in one of two ways. `penalty` adds the gradient of ½ penalty · p², which is then divided by √s
    like any other: numbers with large gradients decay less. `shrink` = 1 − lr · λ acts past the division, on all alike.
    """
    g = g + penalty * p if penalty else g
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * (g * g)
    # eps bounds the step where a gradient has always been nearly zero, as for tokens not met yet.
    return p * shrink - rate * mean / (namespace(p).sqrt(square) / root + eps), mean, square


@dispatched
def lion_update(
    p: Array, g: Array, mean: Array, *, lr: Any, beta1: float, beta2: float, shrink: Any = 1.0
) -> tuple[Array, Array]:
    """Move p by lr in the direction of an average; return p and the mean (Chen et al. 2023).

    p ← shrink · p − lr · sign(β₁ m + (1 − β₁) g)      m ← β₂ m + (1 − β₂) g

    Every number moves by exactly lr, up or down: the sign needs no second average, so an optimizer keeps one array
    for each parameter where Adam keeps two. The step listens to the newest gradient more (β₁ < β₂) than the average
    that is kept.
    """
    way = namespace(p).sign(beta1 * mean + (1 - beta1) * g)
    return p * shrink - lr * way, beta2 * mean + (1 - beta2) * g


@dispatched(wide=("y",))
def sum_of_squares(*arrays: Array) -> Array:
    """Return Σ x² over all numbers of all arrays, added up in the order in which the arrays are given.

    Its root over all gradients is the length by which they are clipped. Sums of floats depend on their order: a fixed
    one makes a run repeatable to the last digit.
    """
    first, *rest = (namespace(x).sum(x * x) for x in arrays)
    return sum(rest, first)
