"""Two curves that activations are made of: the logistic function and the normal distribution.

Both rise from 0 to 1. Neither has a backward of its own: the activations that use them know their derivatives,
σ′ = σ (1 − σ) and Φ′(x) = exp(−x²/2) / √(2π).
"""

import functools
import math
from typing import Any

import numpy as np

from ..arrays import Array, namespace
from ..dispatch import dispatched


@dispatched
def logistic(x: Array) -> Array:
    """Return σ(x) = 1 / (1 + exp(−x)).

    Computed as (1 + tanh(x/2)) / 2, which is the same number and never overflows, however large |x| is. As a chance, σ
    has the odds σ / (1 − σ) = exp(x).
    """
    return 0.5 * (1 + namespace(x).tanh(0.5 * x))


@dispatched
def normal_cdf(x: Array) -> Array:
    """Return Φ(x) = (1 + erf(x / √2)) / 2, the chance that a standard normal variable stays below x.

    NumPy has no error function. On the positive axis  Φ(−t) = exp(−t²/2) · g(t)  with a smooth g, which a Chebyshev
    series fitted to `math.erfc` gives to the last digits; Φ(t) = 1 − Φ(−t) does the rest.
    """
    xp = namespace(x)
    positive = x.real > 0
    t = xp.where(positive, x, -x)
    t = xp.where(t.real < _END, t, _END)  # beyond, Φ(−t) is below the smallest double
    z = (t - _MIDDLE) / (t + _MIDDLE)
    tail = xp.exp(-0.5 * t * t) * _clenshaw(_series(float(np.finfo(x.dtype).eps)), z)
    return xp.where(positive, 1.0 - tail, tail)


_END = 38.0
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
