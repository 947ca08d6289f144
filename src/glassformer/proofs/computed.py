"""Who computes the gradients that are proved: the engine in use. What they are compared with is always NumPy's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .. import dispatch
from ..arrays import Tree
from .case import Case

POSITIONS = ("rows", "columns", "positions")
"""Settings that are NumPy arrays under JAX too, as a model makes them: they are known when a program is traced."""


def computed(case: Case, gradients: Callable[..., Tree], *point: Any) -> Tree:
    """Return `gradients(case, *point)` as NumPy arrays, computed by the engine in use.

    JAX gets all arrays of the case as its own, in float64, and one compiled program for the gradients, as training has.
    """
    if dispatch.current().library == "numpy":
        return gradients(case, *point)
    import jax

    with jax.enable_x64(True):
        moved: Any = case.within(jax.numpy)
        settings = getattr(case, "settings", {})
        if settings:
            known = {name: value for name, value in settings.items() if name in POSITIONS}
            moved = replace(moved, settings={**moved.settings, **known})
        found = jax.jit(lambda given: gradients(moved, *given))(point)
        return jax.tree.map(np.asarray, found)
