"""Half precision: formulas are computed in float32, whatever the type of the arrays that they are given.

    y, saved = op(x)          x of 16 bits is widened first; y and what is kept of the arguments have 16 bits again
    dx = op_backward(dy, saved)     every gradient has the type of its array

What an op records of its own is rounded like its result. Statistics, one number for each vector, stay wide, and so does
everything about a result that is a single number, such as a loss: rounding them would cost digits and save nothing. An
engine may do better where its machine multiplies 16 bits faster.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import cast, is_half, widen

_BACKWARD = "_backward"


def in_full_precision(op: Callable[..., Any], arrays: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """Run an op, or the gradient of one, in float32, and return its results in the types of its arguments."""
    given: dict[int, Any] = {}  # by the identity of what the op sees: what it was given
    wide = [_widened(x, given) for x in arrays]
    result = op(*wide, **settings)
    return _gradients(op, arrays, result) if op.__name__.endswith(_BACKWARD) else _results(arrays, result, given)


def holds_half(x: Any) -> bool:
    """Tell whether an argument, or an array in a record, has 16 bits."""
    if isinstance(x, tuple):
        return any(map(holds_half, x))
    return hasattr(x, "dtype") and is_half(x)


def _widened(x: Any, given: dict[int, Any]) -> Any:
    """Return an argument, or a record, in float32; note which array each one stands for."""
    if isinstance(x, tuple):
        parts = [_widened(part, given) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    wide = widen(x) if hasattr(x, "dtype") and is_half(x) else x
    given[id(wide)] = x
    return wide


def _results(arrays: tuple[Any, ...], result: Any, given: dict[int, Any]) -> Any:
    """Return y and its record, or y alone, in the type of the first argument that has 16 bits."""
    y = result[0] if isinstance(result, tuple) else result
    half = next(x.dtype for x in given.values() if hasattr(x, "dtype") and is_half(x)) if y.ndim else None
    given.setdefault(id(y), y if half is None else cast(y, half))
    return _given_back(result, given, half)


def _given_back(x: Any, given: dict[int, Any], half: Any) -> Any:
    """Put what was given in the place of what stood for it, and round the rest, unless it is a statistic."""
    if isinstance(x, tuple):
        parts = [_given_back(part, given, half) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if id(x) not in given:
        rounds = half is not None and hasattr(x, "dtype") and x.dtype == np.float32 and x.shape[-1:] != (1,)
        given[id(x)] = cast(x, half) if rounds else x
    return given[id(x)]


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
    """Return the names of the arrays that an op takes, given its gradient, which stands beside it."""
    forward = getattr(sys.modules[op.__module__], op.__name__.removesuffix(_BACKWARD))
    return [p.name for p in inspect.signature(forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
