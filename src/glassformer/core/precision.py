"""Half precision: formulas are computed in float32, whatever the type of the arrays that they are given.

    y, saved = op(x)          x of 16 bits is widened first; y and what is kept of the arguments have 16 bits again
    dx = op_backward(dy, saved)     every gradient has the type of its array

A field of a record that is named like an argument holds that argument, and one named y the result. What an op records
of its own is rounded like its result. Statistics and everything about a loss stay wide: rounding them would cost digits
and save nothing. The op says which: `@dispatched(wide=("mean", "rstd"))`. An engine may do better where its machine
multiplies 16 bits faster.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .arrays import cast, is_half, widen

_BACKWARD = "_backward"


def in_full_precision(
    op: Callable[..., Any], run: Callable[..., Any], arrays: tuple[Any, ...], settings: dict[str, Any], wide: Any
) -> Any:
    """Run an op, or the gradient of one, in float32, and return its results in the types of its arguments.

    run    what computes the op: the function itself, or what an engine runs instead
    wide   the fields of its record that stay float32, and y if the result does
    """
    widened = [_widened(x) for x in arrays]
    result = run(*widened, **settings)
    if op.__name__.endswith(_BACKWARD):
        return _gradients(op, arrays, result)
    half = next(_half_types(arrays))
    own = dict(zip(_arguments(op), arrays, strict=False)) | settings
    y, *rest = result if isinstance(result, tuple) else (result,)
    own["y"] = y if "y" in wide else cast(y, half)

    def typed(name: str, part: Any) -> Any:
        """Return what was given for a field of the record, or the result, and the rest rounded unless it stays wide."""
        if hasattr(part, "_fields"):
            return type(part)(*map(typed, part._fields, part))
        if part is y:
            return own["y"]
        for seen, x in zip(widened, arrays, strict=True):
            if part is seen:  # a record that is an argument, as that of GELU, holds what was given, not a rounded copy
                return x
        if name in wide or getattr(part, "dtype", None) != np.float32:
            return part
        given = own.get(name)
        return cast(part, half) if given is None or _widened(given).dtype != part.dtype else given

    return (own["y"], *(typed("", part) for part in rest)) if isinstance(result, tuple) else own["y"]


def holds_half(x: Any) -> bool:
    """Return whether an argument, or an array in a record, has 16 bits."""
    if isinstance(x, tuple):
        return any(map(holds_half, x))
    return hasattr(x, "dtype") and is_half(x)


def _half_types(arrays: tuple[Any, ...]) -> Iterator[Any]:
    for x in arrays:
        if isinstance(x, tuple):
            yield from _half_types(x)
        elif holds_half(x):
            yield x.dtype


def _widened(x: Any) -> Any:
    """Return an argument, or a record, in float32."""
    if isinstance(x, tuple):
        parts = map(_widened, x)
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return widen(x) if holds_half(x) else x


def _gradients(op: Callable[..., Any], arrays: tuple[Any, ...], result: Any) -> Any:
    """Return every gradient in the type of its array: as the record has it, else as dy."""
    dy, saved = arrays[0], arrays[1] if len(arrays) > 1 else None
    grads = result if isinstance(result, tuple) else (result,)
    typed = []
    for name, dx in zip(_arguments(op), grads, strict=False):
        own = getattr(saved, name, None)
        own = dy if own is None else own
        typed.append(cast(dx, own.dtype) if dx is not None and hasattr(own, "dtype") and is_half(own) else dx)
    return tuple(typed) if isinstance(result, tuple) else typed[0]


@functools.cache
def _arguments(op: Callable[..., Any]) -> list[str]:
    """Return the names of the arrays that an op takes, given it or its gradient, which stands beside it."""
    is_gradient = op.__name__.endswith(_BACKWARD)
    forward = getattr(sys.modules[op.__module__], op.__name__.removesuffix(_BACKWARD)) if is_gradient else op
    return [p.name for p in inspect.signature(forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
