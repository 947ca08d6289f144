"""Who computes the gradients that are proved: the engine in use. What they are compared with is always NumPy's."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import dispatch
from ..arrays import Tree
from .case import Case

POSITIONS = ("rows", "columns", "positions")
"""Settings that are NumPy arrays under JAX too, as a model makes them: they are known when a program is traced."""

TOGETHER = 20
"""Cases in one program of JAX, which are compiled in half the time that their own programs take."""


def computed(gradients: Callable[..., Tree], cases: Sequence[Case], points: Sequence[tuple[Any, ...]]) -> list[Tree]:
    """Return `gradients(case, *point)` of every case as NumPy arrays, computed by the engine in use.

    JAX gets all arrays of the cases as its own, in float64, and compiled programs for the gradients, as training has.
    """
    if dispatch.current().library == "numpy":
        return [gradients(case, *point) for case, point in zip(cases, points, strict=True)]
    found = []
    for start in range(0, len(cases), TOGETHER):
        part = slice(start, start + TOGETHER)
        found += _by_jax(gradients, cases[part], points[part])
    return found


def _by_jax(gradients: Callable[..., Tree], cases: Sequence[Case], points: Sequence[tuple[Any, ...]]) -> list[Tree]:
    """Return the gradients of some cases by one program."""
    import jax

    with jax.enable_x64(True):
        moved = [_moved(case, jax.numpy) for case in cases]

        def all_gradients(points: Any) -> Any:
            return [gradients(case, *point) for case, point in zip(moved, points, strict=True)]

        return jax.tree.map(np.asarray, jax.jit(all_gradients)(list(points)))


def _moved(case: Any, xp: Any) -> Any:
    """Return a case within JAX, but for what a model knows as NumPy arrays."""
    moved = case.within(xp)
    settings = getattr(case, "settings", {})
    known = {name: value for name, value in settings.items() if name in POSITIONS}
    return replace(moved, settings={**moved.settings, **known}) if known else moved
