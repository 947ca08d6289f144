"""The gradient of a function that has no backward, by the complex step.

    Im f(x + i·h·v) / h = J v        with J the derivatives of all entries of f by all entries of x;  dx = Jᵀ dy

One step along ones gives all of J for a function of each entry alone, one step for each feature for a function of each
vector, one for each entry otherwise. A step along a random v tells which of these a function is, and a real quotient
along it whether the function is analytic at all: abs, rounding and casts lose the imaginary part.
"""

import warnings
from collections.abc import Callable

import numpy as np

from ..arrays import Array
from ..errors import ConfigError

STEP, REAL_STEP = 1e-30, 1e-9
AGREEMENT = 1e-5
"""How far the complex step and the real quotient may differ, relative to their size."""
SAME = 1e-9
"""How far J v may differ from what its parts say."""
SMALL = 4096
"""Entries that a function may mix: each takes a step."""


def derived_gradient(function: Callable[[Array], Array], dy: Array, x: Array, name: str) -> Array:
    """Return the gradient of x for that of function(x); refuse a function for which it cannot be derived."""
    exact = np.asarray(x, dtype=np.float64)
    v = np.random.default_rng(0).standard_normal(x.shape)

    def along(direction: Array) -> Array:
        return np.imag(function(exact + 1j * STEP * direction)) / STEP

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            moved = along(v)
        except (TypeError, ValueError):  # it refuses complex numbers
            raise _refusal(name, "does not take complex numbers") from None
        ahead, behind = (np.real(function(exact + sign * REAL_STEP * v)) for sign in (1, -1))
        size = max(float(np.abs(moved).max()), float(np.abs(ahead).max()), 1e-30)
        if not np.allclose(moved, (ahead - behind) / (2 * REAL_STEP), rtol=0, atol=AGREEMENT * size):
            raise _refusal(name, "is not analytic: abs, rounding and casts lose what the complex step needs")
        axes = tuple(range(x.ndim))
        for mixed in ((), axes[-1:], axes):  # each entry alone, each vector, all entries together
            sizes = [x.shape[axis] for axis in mixed]
            dx, total = np.zeros(x.shape), np.zeros(x.shape)
            for place in np.ndindex(*sizes) if np.prod(sizes) <= SMALL else ():
                direction = np.zeros(x.shape)
                direction[(..., *place)] = 1
                column = along(direction)
                total += column * np.sum(v * direction, axis=mixed, keepdims=True)
                dx += direction * np.sum(dy * column, axis=mixed, keepdims=True)
            if np.allclose(total, moved, rtol=0, atol=SAME * size):
                return dx.astype(dy.dtype)
    raise _refusal(name, f"mixes more than {SMALL:,} entries")


def _refusal(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"the function that changes {name} has no backward, and {why}",
        hint="give its gradient: transform(name, function, backward=lambda dy, x: …)",
    )
