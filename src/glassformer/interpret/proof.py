"""Proof of a gradient: one entry of one value, by the complex step.

    f(v + ih) = f(v) + ih f′(v) − …        so        f′(v) = Im f(v + ih) / h

Nothing is subtracted, so h can be tiny and no digit is lost. The model runs once more with one entry of one value a
little off the real line; the imaginary part of the target is the derivative, found without any backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import ConfigError
from ..tree import flatten, tree_map
from .changes import add
from .gradients import LOSS, Gradients, Target, gradients
from .names import MASK
from .packed import unpacked
from .run import Run, watch
from .where import axes_of

STEP = 1e-30


class Proof(NamedTuple):
    """A derivative found twice."""

    gradient: float  # by the backward pass
    step: float  # by the complex step

    @property
    def difference(self) -> float:
        """How far they are apart, by the larger of the two or by one."""
        return abs(self.gradient - self.step) / max(abs(self.gradient), abs(self.step), 1.0)


def prove(run: Run, name: str, index: tuple[int, ...], of: Target = LOSS, found: Gradients | None = None) -> Proof:
    """Find the derivative of a target for one entry of a value or a parameter, both ways, in float64.

    found   gradients of the same run and target, where they are known already in float64
    """
    double = in_double(run)
    value = named(double, name)
    if value.dtype.kind not in "fc" or name.endswith(MASK):
        raise ConfigError(f"{name} is no real number", hint="a derivative is for values and parameters")
    where = dict(zip(axes_of(name, value.ndim), index, strict=False))
    if len(index) != value.ndim:
        raise ConfigError(
            f"{name} has {value.ndim} axes, the index {index} has {len(index)}", hint=f"shape {value.shape}"
        )
    measured = of.value(double.changed(add(name, STEP * 1j, **where)))
    return Proof(float(named_gradient(double, name, of, found)[index]), float(np.imag(measured) / STEP))


def in_double(run: Run) -> Run:
    """Return the same run, with the same changes, in float64."""
    if all(leaf.dtype == np.float64 for leaf in flatten(run.params).values()):
        return run
    start = run.plain or run
    double = tree_map(lambda leaf: unpacked(leaf).astype(np.float64), start.params)
    return watch(run.model, double, start.batch, keep=run.keeps).changed(*run.changes)


def named(run: Run, name: str) -> Array:
    """Return a value or a parameter by its name."""
    params = flatten(run.params)
    return params[name] if name in params else run[name]


def named_gradient(run: Run, name: str, of: Target = LOSS, found: Gradients | None = None) -> Array:
    """Return the gradient of a value or a parameter by its name."""
    found = gradients(run, of) if found is None or found.run is not run else found
    return found.param(name) if name in flatten(found.params) else found[name]
