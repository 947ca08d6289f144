"""The base of all layers: frozen settings, with parameters kept outside.

    params = layer.init(seed)
    y, saved = layer.forward(params, x)
    dx, grads = layer.backward(params, saved, dy)

`params` is a nested dict of arrays and `grads` has the same names. `saved` records the forward pass: what the backward
pass needs and what one wants to look at; it holds no parameters.

A layer object so never changes: the same one runs with any parameters, in any thread, in float64 or with complex
numbers for a proof; and what training moves is data like any other, to be saved, averaged or looked at by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.dispatch import located
from ..core.tree import tree_map


@dataclass(frozen=True)
class Spec:
    """A parameter before it exists: its shape, and the normal distribution its first values come from."""

    shape: tuple[int, ...]
    std: float = 0.0  # 0: nothing random, as for biases (mean 0) and gains (mean 1)
    mean: float = 0.0

    def draw(self, rng: np.random.Generator, dtype: Any) -> Array:
        """Return first values; exactly the mean when nothing is to be random."""
        if self.std == 0:
            return np.full(self.shape, self.mean, dtype=dtype)
        values = rng.standard_normal(self.shape)
        values *= self.std  # in place: some parameters fill a good part of the memory
        values += self.mean
        return values.astype(dtype, copy=False)


@dataclass(frozen=True)
class RecordShape:
    """An array of a record before it exists: its shape, and the type of its numbers.

    dtype   "compute", that of the stream; "params", that of the parameters, for statistics and tables; or "bool"
    """

    shape: tuple[int, ...]
    dtype: str = "compute"


class Layer:
    """Base of all layers: subclasses say which parameters they have, `init` makes them."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]

    def __init_subclass__(cls, **settings: Any) -> None:
        """Mark the methods of a layer, your own too, so that a run knows whose ops it sees."""
        super().__init_subclass__(**settings)
        for name in ("forward", "backward"):
            if isinstance(cls.__dict__.get(name), FunctionType) and not hasattr(cls.__dict__[name], "observed_as"):
                setattr(cls, name, located(cls.__dict__[name]))

    def specs(self) -> Tree:
        """Return the `Spec` of every parameter, under the names `init` will use; nothing is allocated."""
        raise NotImplementedError

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the `RecordShape` of all arrays that training on x of this shape makes here and the record keeps.

        x itself is counted where it was made, ids and masks nowhere. A memory is as long as x.
        """
        return {}

    def init(self, seed: int | np.random.Generator = 0, dtype: Any = np.float32) -> Tree:
        """Draw all parameters; the same seed gives the same numbers."""
        rng = np.random.default_rng(seed)
        return tree_map(lambda spec: spec.draw(rng, dtype), self.specs())


class Frozen(dict):
    """Parameters of a layer whose matrix "w", or "table", is not trained, and so needs no gradient.

    It is read like any dict. `Linear`, `Embedding` and `TokenHead` compute less for it in their backward passes. Other
    layers compute a gradient that is left alone.
    """

    def gradient(self, x: Array, dy: Array) -> Tree:
        """Return what takes the place of  dw = xᵀ dy: nothing, for a matrix that is not trained in any way."""
        return None


class InputGrads(NamedTuple):
    """Gradients of everything a layer read: its input, the memory it looked at, the bias on its scores."""

    x: Array
    memory: Array | None = None
    bias: Array | None = None

    def after(self, later: InputGrads) -> InputGrads:
        """Return this layer's gradient of x, and the sums for what a later layer read as well: memory and bias."""
        return InputGrads(self.x, sum_of(later.memory, self.memory), sum_of(later.bias, self.bias))


def sum_of(a: Array | None, b: Array | None) -> Array | None:
    """Add two gradients, each of which may not be there."""
    if a is None or b is None:
        return b if a is None else a
    return ops.add(a, b)[0]
