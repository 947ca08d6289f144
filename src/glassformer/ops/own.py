"""Ops of one's own: any pair that keeps the contract of this folder."""

from collections.abc import Callable
from typing import Any

from .. import registry
from ..arrays import Array
from ..errors import ConfigError


def register_op(name: str, forward: Callable, backward: Callable, *arrays: Array, **settings: Any) -> None:
    """Let `glassformer check` prove a pair of one's own.

        y, saved = forward(*arrays, **settings)      grads = backward(dy, saved, **settings)

    `arrays` are an example: small arrays of float64 at which every entry of every gradient is compared with the complex
    step, f(x + ih) = f(x) + ih f′(x) + …, whose imaginary part over h is the derivative. Nothing is subtracted, so h
    can be tiny and no digit is lost. Gradients come in the order of the arrays, a single one by itself.
    """
    if not arrays:
        raise ConfigError(f"the op {name!r} has no example", hint="give small float64 arrays, as forward takes them")
    registry.register("op", name, (forward, backward, arrays, settings))
