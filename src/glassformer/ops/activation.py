"""Activations: the bend between two matrices, without which both would be one matrix; and the gated forms.

An activation acts on every number by itself, so its gradient is a product, number by number:

    y = act(x)      dx = dy · act′(x)

Its record is x alone: act′(x) is computed from it again, which is cheaper than keeping it.

ReLU has a corner and sends nothing back from the negative side, so a feature that is negative for every example stops
learning. GELU (Hendrycks and Gimpel 2016) and SiLU round the corner: both are x times a curve that rises from 0 to 1,
so they are nearly 0 far to the left, nearly x far to the right, and dip a little below zero in between. At −∞ they are
−0.0, which they approach from below, where x times the curve would be −∞ · 0: x is cut off where the curves end.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core import registry
from ..core.arrays import Array, namespace
from ..core.dispatch import dispatched, recorded
from ..core.errors import ConfigError, ShapeError, did_you_mean

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715
_FAR = 800.0  # below −800 the curves σ and Φ are 0, and above 800 they are 1, in every precision


@dispatched
def relu(x: Array) -> tuple[Array, Array]:
    """Keep what is positive: y = max(x, 0)."""
    xp = namespace(x)
    return xp.where(x > 0, x, xp.zeros((), dtype=x.dtype)), x


@dispatched
def relu_backward(dy: Array, x: Array) -> Array:
    """Gradient of `relu`: dx = dy where x > 0, else 0 (also at x = 0, where there is no derivative)."""
    xp = namespace(x)
    return xp.where(x > 0, dy, xp.zeros((), dtype=dy.dtype))


@dispatched
def gelu(x: Array) -> tuple[Array, Array]:
    """Weigh x by the chance that a standard normal variable stays below it: y = x · Φ(x), the exact (erf) form."""
    return namespace(x).maximum(x, -_FAR) * normal_cdf(x), x


@dispatched
def gelu_backward(dy: Array, x: Array) -> Array:
    """Gradient of `gelu`.

        dx = dy · (Φ(x) + x · φ(x)),   φ(x) = Φ′(x) = exp(−x²/2) / √(2π)

    x stands in the product twice, as itself and inside Φ: one term for each.
    """
    xp = namespace(x)
    x = xp.clip(x, -_FAR, _FAR)
    # y = x · Φ(x)
    density = xp.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return dy * (normal_cdf(x) + x * density)


@dispatched
def gelu_tanh(x: Array) -> tuple[Array, Array]:
    """GELU as GPT-2 computes it: y = x/2 · (1 + tanh u),  u = √(2/π) · (x + 0.044715 x³).

    (1 + tanh u)/2 is the logistic of 2u, so y = x · σ(2u): tanh stands for Φ, and differs from it by less than 0.0004.
    """
    left = namespace(x).maximum(x, -_FAR)
    return left * logistic(_twice_u(left)), x


@dispatched
def gelu_tanh_backward(dy: Array, x: Array) -> Array:
    """Gradient of `gelu_tanh`.

    dx = dy · (σ + x · σ (1 − σ) · 2u′),   σ = σ(2u),   u′ = √(2/π) · (1 + 3 · 0.044715 x²)
    """
    x = namespace(x).clip(x, -_FAR, _FAR)
    s = logistic(_twice_u(x))
    # y = x · s:  the product rule, with  ds = s (1 − s) · d(2u)
    inner = 2 * _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x)
    return dy * (s + x * (s * (1 - s)) * inner)


def _twice_u(x: Array) -> Array:
    """Return 2u = 2 √(2/π) · x · (1 + 0.044715 x²)."""
    x = namespace(x).minimum(x, _FAR)  # the cube of a large number would overflow
    return 2 * _TANH_SCALE * x * (1 + _TANH_CUBIC * x * x)


@dispatched
def silu(x: Array) -> tuple[Array, Array]:
    """Weigh x by its own logistic: y = x · σ(x),  σ(x) = 1 / (1 + exp(−x))."""
    return namespace(x).maximum(x, -_FAR) * logistic(x), x


@dispatched
def silu_backward(dy: Array, x: Array) -> Array:
    """Gradient of `silu`: dx = dy · σ · (1 + x · (1 − σ)), by the product rule and σ′ = σ (1 − σ)."""
    x = namespace(x).clip(x, -_FAR, _FAR)
    # y = x · s
    s = logistic(x)
    return dy * (s * (1 + x * (1 - s)))


class GatedSaved(NamedTuple):
    gate: Array  # (..., F)
    up: Array  # (..., F)


@dispatched
def gated(gate: Array, up: Array, *, activation: str = "silu") -> tuple[Array, GatedSaved]:
    """Open and close one half of a feed-forward layer by the other: y = act(gate) · up, all of shape (..., F).

    A feature is so multiplied by something that was itself computed from x, which sums of bent features can only
    imitate. With "silu" this is SwiGLU, with "gelu" or "gelu_tanh" GEGLU, with "relu" ReGLU (Shazeer 2020).
    """
    namespace(gate)
    namespace(up)
    if gate.shape != up.shape:
        raise ShapeError(
            f"gate has shape {tuple(gate.shape)} but up has {tuple(up.shape)}", hint="both need the same shape"
        )
    opened, _ = activation_pair(activation)[0](gate)
    return opened * up, GatedSaved(gate, up)


@dispatched
def gated_backward(dy: Array, saved: GatedSaved, *, activation: str = "silu") -> tuple[Array, Array]:
    """Gradient of `gated`: dgate = act′(gate) · (dy · up), dup = dy · act(gate).

    Each factor's gradient is dy times the other factor; the gate's goes on through its activation.
    """
    forward, backward = activation_pair(activation)
    # y = opened · up,  opened = act(gate)
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


def register_activation(name: str, forward: Callable, backward: Callable) -> None:
    """Register your own activation under a name that configs may choose.

        y, saved = forward(x)      dx = backward(dy, saved)

    From then on `activation="name"` works in every config, and `glassformer check` proves its gradient.
    """
    registry.register("activation", name, (forward, backward))
    # A backward is known by the name of its forward; what was registered, such as a lambda, may have any.
    ACTIVATIONS[name] = (recorded(forward, name), recorded(backward, f"{name}_backward"))


def register_op(name: str, forward: Callable, backward: Callable, *arrays: Array, **settings: Any) -> None:
    """Register your own pair, which `glassformer check` then proves.

        y, saved = forward(*arrays, **settings)      grads = backward(dy, saved, **settings)

    `arrays` are an example: small arrays of float64 at which every entry of every gradient is compared with the complex
    step, f(x + ih) = f(x) + ih f′(x) + …, whose imaginary part over h is the derivative. Nothing is subtracted, so h
    can be tiny and no digit is lost. Gradients come in the order of the arrays, a single one by itself.
    """
    if not arrays:
        raise ConfigError(f"the op {name!r} has no example", hint="give small float64 arrays, as forward takes them")
    registry.register("op", name, (forward, backward, arrays, settings))


# --- two curves that rise from 0 to 1 ---------------------------------------------------------------------------------
# Neither has a backward of its own: σ′ = σ (1 − σ) and Φ′(x) = exp(−x²/2) / √(2π) stand in the activations above.


@dispatched
def logistic(x: Array) -> Array:
    """Return σ(x) = 1 / (1 + exp(−x)).

    Computed as the softmax of x and 0, with the larger of them subtracted: nothing overflows, and a small σ keeps all
    its digits. As a chance, σ has the odds σ / (1 − σ) = exp(x).
    """
    xp = namespace(x)
    e, one = xp.exp(xp.minimum(x, 0)), xp.exp(-xp.maximum(x, 0))  # exp(x) and 1, divided by the larger
    return e / (e + one)


@dispatched
def normal_cdf(x: Array) -> Array:
    """Return Φ(x) = (1 + erf(x / √2)) / 2, the chance that a standard normal variable stays below x.

    NumPy has no error function. On the positive axis  Φ(−t) = exp(−t²/2) · g(t)  with a smooth g, which a Chebyshev
    series fitted to `math.erfc` gives to the last digits; Φ(t) = 1 − Φ(−t) does the rest.
    """
    xp = namespace(x)
    positive = x.real > 0
    t = xp.minimum(xp.where(positive, x, -x), _FAR)
    z = (t - _MIDDLE) / (t + _MIDDLE)
    tail = xp.exp(-0.5 * t * t) * _clenshaw(_series(float(np.finfo(x.dtype).eps)), z)
    return xp.where(positive, 1.0 - tail, tail)


_MIDDLE = 4.0  # z = (t − 4) / (t + 4) maps [0, ∞) to [−1, 1), where Chebyshev's polynomials live


@functools.cache
def _series(eps: float, terms: int = 32) -> tuple[float, ...]:
    """Fit g on the whole half line by its values at Chebyshev nodes; leave out terms that `eps` cannot see.

        cₙ = 2/N Σ_k g(z_k) cos(n (2k + 1) π / 2N),   z_k = cos((2k + 1) π / 2N)      (c₀ half of that)

    The polynomials Tₙ(cos a) = cos(n a) stay within ±1, so no term is larger than its coefficient, and for a smooth
    function these fall off geometrically: the error is about as large as the first term left out.
    """
    nodes = np.cos(np.pi * (np.arange(terms) + 0.5) / terms)
    values = [_scaled_tail(_MIDDLE * (1 + z) / (1 - z)) for z in nodes]
    # Whole turns are taken off as integers: cos of a large angle would cost the last digits.
    steps = np.outer(np.arange(terms), 2 * np.arange(terms) + 1) % (4 * terms)
    series = 2.0 / terms * np.cos(np.pi * steps / (2 * terms)) @ np.asarray(values)
    series[0] /= 2
    needed = int(np.flatnonzero(np.abs(series) > eps / 8)[-1]) + 1
    return tuple(float(c) for c in series[:needed])


def _scaled_tail(t: float) -> float:
    """Return g(t) = exp(t²/2) · Φ(−t), by its asymptotic series where erfc would underflow."""
    if t < 30:
        return 0.5 * math.exp(t * t / 2) * math.erfc(t / math.sqrt(2))
    term = total = 1.0
    for n in range(1, 12):
        term *= -(2 * n - 1) / (t * t)
        total += term
    return total / (t * math.sqrt(2 * math.pi))


def _clenshaw(series: tuple[float, ...], z: Any) -> Any:
    """Sum Σ cₙ Tₙ(z) from the last term down: Tₙ₊₁ = 2 z Tₙ − Tₙ₋₁ turned into a recurrence of the sums."""
    # b₁ and b₂ are the last two sums: no polynomial is ever made, and rounding errors stay as small as the terms.
    b1 = b2 = 0.0
    for c in reversed(series[1:]):
        b1, b2 = 2 * z * b1 - b2 + c, b1
    return z * b1 - b2 + series[0]
