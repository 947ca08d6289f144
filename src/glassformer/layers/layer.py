"""What all layers are: frozen settings, with parameters kept outside.

    params = layer.init(seed)
    y, saved = layer.forward(params, x)
    dx, grads = layer.backward(params, saved, dy)

`params` is a nested dict of arrays and `grads` has the same names. `saved` records the forward pass: what the backward
pass needs and what one wants to look at; it holds no parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..tree import tree_map


@dataclass(frozen=True)
class Spec:
    """A parameter before it exists: its shape, and the normal distribution its first values come from."""

    shape: tuple[int, ...]
    std: float = 0.0
    mean: float = 0.0

    def draw(self, rng: np.random.Generator, dtype: Any) -> Array:
        """Return first values; exactly the mean when nothing is to be random."""
        if self.std == 0:
            return np.full(self.shape, self.mean, dtype=dtype)
        values = rng.standard_normal(self.shape)
        values *= self.std  # in place: some parameters fill a good part of the memory
        values += self.mean
        return values.astype(dtype, copy=False)


class Layer:
    """Base of all layers: subclasses say which parameters they have, `init` makes them."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]

    def specs(self) -> Tree:
        """Return the `Spec` of every parameter, under the names `init` will use; nothing is allocated."""
        raise NotImplementedError

    def init(self, seed: int | np.random.Generator = 0, dtype: Any = np.float32) -> Tree:
        """Draw all parameters; the same seed gives the same numbers."""
        rng = np.random.default_rng(seed)
        return tree_map(lambda spec: spec.draw(rng, dtype), self.specs())
