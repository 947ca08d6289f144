"""Derivatives by numbers alone: what the hand-derived gradients are compared with.

The complex step (Squire and Trapp 1998) moves the input by a tiny imaginary amount and reads the slope off the
imaginary part of the result:

    f(x + i·h) = f(x) + i·h·f′(x) − …      so      f′(x) = Im f(x + i·h) / h

Nothing is subtracted, so h may be as small as 1e-30 and the slope is exact to the last digits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..tree import map_named, named_leaves, tree_map

STEP = 1e-30
"""How far the complex step goes: its square vanishes beside any double."""

FLOOR = 1e-2
"""Gradients below this size are compared absolutely: they are what is left of larger terms that cancel."""

Function = Callable[..., Any]


def complex_step(function: Function, arrays: Sequence[Array | None], index: int) -> Array:
    """Return the gradient of `function(*arrays)`, a scalar, for arrays[index], entry by entry."""
    moved: list[Any] = [None if x is None else np.array(x, dtype=np.complex128) for x in arrays]
    x = moved[index]
    gradient = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        start = x[place]
        x[place] = start + 1j * STEP
        gradient[place] = function(*moved).imag / STEP
        x[place] = start
    return gradient


def complex_step_along(function: Function, point: Tree, direction: Tree) -> float:
    """Return the slope of `function(point)`, a scalar, along `direction`, a tree like the point."""
    return float(function(tree_map(lambda x, move: x + 1j * STEP * move, point, direction)).imag / STEP)


def relative_error(analytic: Array, numeric: Array) -> float:
    """Return max |analytic − numeric| over the size of the larger one, infinite when the shapes differ."""
    analytic, numeric = np.asarray(analytic), np.asarray(numeric)
    if analytic.shape != numeric.shape:
        return float("inf")
    if analytic.size == 0:
        return 0.0
    size = max(np.max(np.abs(analytic)), np.max(np.abs(numeric)), FLOOR)
    return float(np.max(np.abs(analytic - numeric)) / size)


def worst(errors: Sequence[float]) -> float:
    """Return the largest error, 0 of none; one that is not a number counts as the worst of all."""
    return float(np.max(np.nan_to_num(np.asarray(errors), nan=np.inf, posinf=np.inf), initial=0.0))


def errors_by_name(function: Function, point: Tree, gradients: Tree, rng: np.random.Generator) -> dict[str, float]:
    """Compare the gradients of a scalar `function(point)` with slopes along random directions.

    One direction per leaf, so that no leaf hides behind a larger one, and one ("everything") through all of them.
    A gradient that is missing, left over or of another shape is infinitely wrong.
    """
    leaves, grads = dict(named_leaves(point)), dict(named_leaves(gradients))
    directions = {name: rng.standard_normal(x.shape) for name, x in leaves.items()}
    errors = dict.fromkeys(leaves.keys() ^ grads.keys(), float("inf"))
    for name in leaves.keys() & grads.keys():
        if tuple(grads[name].shape) != tuple(leaves[name].shape):
            errors[name] = float("inf")
    if errors:
        return errors
    shares = {name: float(np.sum(grads[name] * move)) for name, move in directions.items()}
    for name, share in shares.items():
        only = _like(point, {name: directions[name]})
        errors[name] = relative_error(share, complex_step_along(function, point, only))
    along = complex_step_along(function, point, _like(point, directions))
    return errors | {"everything": relative_error(sum(shares.values()), along)}


def errors_along(
    function: Function, point: Tree, gradients: Tree, rng: np.random.Generator, *, directions: int = 4
) -> list[float]:
    """Compare the gradients of a scalar `function(point)` with slopes along random directions through all leaves.

    A slope Σ g · v of random terms is about as large as √Σ (g · v)²; one that happens to be smaller is judged by that.
    """
    leaves, grads = dict(named_leaves(point)), dict(named_leaves(gradients))
    if {n: tuple(x.shape) for n, x in leaves.items()} != {n: tuple(x.shape) for n, x in grads.items()}:
        return [float("inf")]
    errors = []
    for _ in range(directions):
        moves = {name: rng.standard_normal(x.shape) for name, x in leaves.items()}
        terms = np.concatenate([np.ravel(grads[name] * move) for name, move in moves.items()])
        numeric = complex_step_along(function, point, _like(point, moves))
        size = max(abs(numeric), float(np.linalg.norm(terms)), FLOOR)
        errors.append(abs(float(np.sum(terms)) - numeric) / size)
    return errors


def _like(tree: Tree, leaves: dict[str, Array]) -> Tree:
    """Return a tree of the same structure with the given leaves, zeros elsewhere."""
    return map_named(lambda name, x: leaves.get(name, np.zeros(x.shape)), tree)
