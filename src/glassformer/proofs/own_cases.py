"""Parts of one's own with the inputs under which their gradients are proved: whatever was registered is checked too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import registry
from ..arrays import Array
from ..layers import Layer
from .case import OpCase


def own_op_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Ops at their own examples; activations are among those of the table already."""
    for name, (forward, backward, arrays, settings) in registry.own("op").items():
        yield OpCase(name, forward, backward, arrays, (), settings)


def own_layers(normal: Callable[..., Array]) -> Iterator[tuple[str, Layer, dict[str, Array], dict[str, Any]]]:
    """Norms."""
    for name, make in registry.own("norm").items():
        yield name, make(4, 1e-5), {"x": normal((2, 3, 4))}, {}


def own_models() -> Iterator[dict[str, Any]]:
    """Settings of a model for each block and each kind of positions, and for activations and norms inside one."""
    for family in ("activation", "norm", "positions", "block"):
        for name in registry.own(family):
            yield {family: name}
