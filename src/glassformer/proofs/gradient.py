"""Derivatives by numbers alone: what the hand-derived gradients are compared with.

The complex step (Squire and Trapp 1998) moves the input by a tiny imaginary amount and reads the slope off the
imaginary part of the result:

    f(x + i·h) = f(x) + i·h·f′(x) − …      so      f′(x) = Im f(x + i·h) / h

Nothing is subtracted, so h may be as small as 1e-30 and the slope is exact to the last digits. It holds for analytic
functions only: abs, a norm, a variance, `.real` and casts are not analytic, and the complex step is wrong without a
sign of it. Each result is therefore compared once with a real difference quotient, (f(x + h) − f(x − h)) / 2h. Where
the two disagree, the quotient is the derivative; it is exact to about seven digits.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.dispatch import use_engine
from ..core.tree import rebuilt, tree_map

STEP = 1e-30
"""The complex step: its square vanishes beside any double."""

FLOOR = 1e-2
"""Gradients below this size are compared absolutely: they are what is left of larger terms that cancel."""

REAL_STEP = 1e-9
"""The step of the one real quotient: smaller than the distance of any proved input from a kink."""

AGREEMENT = 1e-5
"""The largest difference between the complex step and that quotient, relative to their size."""

EPS = float(np.finfo(np.float64).eps)

Function = Callable[..., Any]


class Derivative(NamedTuple):
    """A numeric derivative; `analytic` tells whether it comes from the complex step, exact to the last digits."""

    value: Any
    analytic: bool


def derivative(function: Function, x: Array, *, eps: float = EPS) -> Derivative:
    """Return the gradient of a scalar `function(x)`, entry by entry; `eps` is the precision that it computes in."""
    with reference():
        if eps == EPS:  # the complex step and the real one beside it vanish in single precision
            gradient = complex_step(function, x)
            # Entries of −inf, such as masked scores, do not move.
            signs = np.random.default_rng(2).choice([-1.0, 1.0], x.shape)
            direction = np.where(np.isfinite(x), signs * np.maximum(1.0, np.abs(x)), 0.0)
            terms = gradient * direction
            size = float(np.linalg.norm(terms))
            if _agree(lambda t: function(np.where(direction == 0, x, x + t * direction)), float(np.sum(terms)), size):
                return Derivative(gradient, analytic=True)
        return Derivative(real_difference(function, x, eps=eps), analytic=False)


def slope_along(function: Function, point: Tree, direction: Tree, *, analytic: bool | None = None) -> Derivative:
    """Return the slope of a scalar `function(point)` along `direction`, a tree like the point.

    analytic   whether the complex step may be trusted (None: compare it with a real quotient)
    """

    def shifted(t: complex) -> Any:
        return function(tree_map(lambda x, move: x + t * move, point, direction))

    with reference():
        if analytic is not False:
            try:
                slope = float(np.imag(shifted(1j * STEP)) / STEP)
            except TypeError:  # the function refuses complex numbers
                slope = float("nan")
            if analytic or _agree(shifted, slope, abs(slope)):
                return Derivative(slope, analytic=True)
        return Derivative(real_slope(shifted), analytic=False)


@contextmanager
def reference() -> Iterator[None]:
    """Compute with the ops as written; what overflows or casts for complex inputs needs no warning."""
    with use_engine("numpy"), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        yield


def complex_step(function: Function, x: Array) -> Array:
    """Return the gradient by the complex step; NaN where the function refuses complex numbers."""
    moved = np.array(x, dtype=np.complex128)
    gradient = np.empty(moved.shape)
    for index in np.ndindex(moved.shape):
        start = moved[index]
        moved[index] = start + 1j * STEP
        try:
            gradient[index] = np.imag(function(moved)) / STEP
        except TypeError:
            return np.full(moved.shape, np.nan)
        moved[index] = start
    return gradient


def real_difference(function: Function, x: Array, *, eps: float = EPS) -> Array:
    """Return the gradient by real difference quotients, entry by entry."""
    moved = np.array(x, dtype=np.float64)
    gradient = np.zeros(moved.shape)
    for index in np.ndindex(moved.shape):
        start = float(moved[index])
        if not np.isfinite(start):
            continue

        def shifted(t: float, index: tuple[int, ...] = index, start: float = start) -> Any:
            moved[index] = start + t
            return function(moved)

        gradient[index] = real_slope(shifted, max(1.0, abs(start)), eps)
        moved[index] = start
    return gradient


def real_slope(function: Function, scale: float = 1.0, eps: float = EPS) -> float:
    """Return the slope of `function(t)` at 0: of several quotients, the one that differs least from its neighbors.

    The two sides of a quotient differ by h · f″ and by rounding, eps · |f| / h; across a kink they never agree.
    """
    start, slope, least, wider = float(np.real(function(0.0))), float("nan"), float("inf"), float("inf")
    for exponent in range(2, 10):
        h = scale * 10.0**-exponent
        up, down = (float(np.real(function(h))) - start) / h, (start - float(np.real(function(-h)))) / h
        both = (up + down) / 2
        doubt = abs(up - down) + abs(both - wider) + eps * max(1.0, abs(start)) / h
        if doubt < least:
            slope, least = both, doubt
        wider = both
    return slope


def _agree(shifted: Function, slope: float, size: float) -> bool:
    """Return whether one real quotient agrees with the complex step's slope, up to rounding."""
    ahead, behind = float(np.real(shifted(REAL_STEP))), float(np.real(shifted(-REAL_STEP)))
    quotient = (ahead - behind) / (2 * REAL_STEP)
    allowed = AGREEMENT * max(abs(quotient), size, FLOOR) + 100 * EPS * abs(ahead) / REAL_STEP
    return bool(abs(quotient - slope) <= allowed)


def relative_error(analytic: Array, numeric: Array) -> float:
    """Return max |analytic − numeric| over the size of the larger one, infinite when the shapes differ."""
    analytic, numeric = np.asarray(analytic), np.asarray(numeric)
    if analytic.shape != numeric.shape:
        return float("inf")
    if analytic.size == 0:
        return 0.0
    size = max(np.max(np.abs(analytic)), np.max(np.abs(numeric)), FLOOR)
    return float(np.max(np.abs(analytic - numeric)) / size)


def worst(errors: Any) -> float:
    """Return the largest error, 0 of none; NaN counts as infinite."""
    return float(np.max(np.nan_to_num(np.asarray(errors), nan=np.inf, posinf=np.inf), initial=0.0))


def error_along(
    function: Function, point: Tree, grads: dict[str, Array], rng: np.random.Generator, *, directions: int = 4
) -> tuple[float, bool]:
    """Compare gradients by name of a scalar `function(point)` with slopes along random directions through all leaves.

    Return the largest error, and whether the complex step measured it. A slope Σ g · v of random terms is about as
    large as √Σ (g · v)²; one that happens to be smaller is judged by that.
    """
    errors, analytic = [], None
    for _ in range(directions):
        moves = {name: rng.standard_normal(grad.shape) for name, grad in grads.items()}
        terms = np.concatenate([np.ravel(grads[name] * move) for name, move in moves.items()])
        numeric, analytic = slope_along(function, point, rebuilt(point, moves), analytic=analytic)
        errors.append(abs(float(np.sum(terms)) - numeric) / max(abs(numeric), float(np.linalg.norm(terms)), FLOOR))
    return worst(errors), bool(analytic)


def mismatches(leaves: dict[str, Array], grads: dict[str, Array]) -> dict[str, str]:
    """Return which gradients are missing, left over, of another shape or of lower precision, and how."""
    wrong = {}
    for name in leaves.keys() | grads.keys():
        if name not in grads:
            wrong[name] = f"the backward returns no gradient for {name}"
        elif name not in leaves:
            wrong[name] = f"the backward returns a gradient for {name}, which the forward does not read"
        elif tuple(grads[name].shape) != tuple(leaves[name].shape):
            shapes = f"{tuple(grads[name].shape)}, and {name} has {tuple(leaves[name].shape)}"
            wrong[name] = f"the gradient of {name} has the shape {shapes}"
        elif grads[name].dtype.kind == "f" and grads[name].dtype.itemsize < 8:
            wrong[name] = f"the gradient of {name} is {grads[name].dtype}, and proofs need float64"
    return wrong
