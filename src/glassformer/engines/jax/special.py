"""Functions that JAX has and NumPy lacks."""

from __future__ import annotations

import math

from jax.lax import logistic as jax_logistic
from jax.scipy.special import erfc

from ...arrays import Array, is_half
from ...dispatch import stands_for
from ...ops import special


@stands_for(special.logistic)
def logistic(x: Array) -> Array:
    """Return σ(x) as one operation of JAX."""
    return NotImplemented if is_half(x) else jax_logistic(x)


@stands_for(special.normal_cdf)
def normal_cdf(x: Array) -> Array:
    """Return Φ(x) = erfc(−x / √2) / 2."""
    return NotImplemented if is_half(x) else 0.5 * erfc(-x * math.sqrt(0.5))
