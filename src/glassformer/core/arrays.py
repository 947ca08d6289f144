"""Arrays: which library they come from, checks of their shapes and dtypes, and half precision.

NumPy (2 and later) and JAX arrays both answer `__array_namespace__`, so an op asks its data for the library and the
same source runs on either.

Formulas are computed in float32 where their arrays have 16 bits:

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
from typing import Any, TypeAlias

import numpy as np

from .errors import ConfigError, DTypeError, LengthError, ShapeError, TokenError

Array: TypeAlias = Any
"""A NumPy or a JAX array."""

Tree: TypeAlias = Any
"""Arrays in nested dicts, lists and named tuples."""


def namespace(x: Array) -> Any:
    """Return the library that `x` belongs to: `numpy` or `jax.numpy`."""
    try:
        return x.__array_namespace__()
    except AttributeError:
        raise DTypeError(
            f"expected an array, got {type(x).__name__}", hint="wrap it first: numpy.asarray(...)"
        ) from None


def is_traced(x: Array) -> bool:
    """Return whether the values of `x` are not known yet, as under `jax.jit`."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.core.Tracer)


def is_half(x: Array) -> bool:
    """Return whether `x` holds floating-point numbers of 16 bits."""
    return x.dtype.itemsize == 2 and not is_integer(x)


def half_type(x: Array, name: str) -> Any:
    """Return the type "bfloat16" or "float16" of the library of x."""
    dtype = getattr(namespace(x), name, None)
    if dtype is None:
        raise ConfigError(f"NumPy has no {name}", hint='compute in "float16" or in float32 here, or use the engine jax')
    return dtype


def widen(x: Array) -> Array:
    """Return half-precision arrays as float32, in which sums and squares keep their digits; others unchanged."""
    namespace(x)
    return x.astype(np.float32) if is_half(x) else x


def narrow(w: Array, x: Array) -> Array:
    """Return parameters in the type of x if x has half precision; master copies are wider."""
    return cast(w, x.dtype) if is_half(x) else w


def real_type(x: Array) -> Any:
    """Return the real type in which formulas about x are computed: float32 for half precision."""
    return widen(x[..., :0] if x.ndim else x).real.dtype


def cast(x: Array, dtype: Any) -> Array:
    """Return `x` in `dtype`; complex numbers, which measure derivatives, stay complex."""
    return x if x.dtype == dtype or x.dtype.kind == "c" else x.astype(dtype)


def is_integer(x: Array) -> bool:
    """Return whether `x` holds integers."""
    return np.issubdtype(x.dtype, np.integer)


def unbroadcast(dy: Array, shape: tuple[int, ...]) -> Array:
    """Sum `dy` over the axes along which an array of `shape` was broadcast: the gradient of broadcasting."""
    dy = widen(dy).sum(axis=tuple(range(dy.ndim - len(shape))))
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1 and dy.shape[axis] != 1)
    return dy.sum(axis=stretched, keepdims=True) if stretched else dy


def check_ids(ids: Array, size: int, *, what: str = "token ids", ignore: int | None = None) -> None:
    """Refuse ids that are not integers or lie outside [0, size); `ignore` is allowed besides.

    Under `jax.jit` only the dtype is checked, because the values are unknown.
    """
    namespace(ids)
    if not is_integer(ids):
        raise DTypeError(f"{what} must be integers, got an array of {ids.dtype}", hint="convert with .astype(int)")
    if is_traced(ids):
        return
    values = np.asarray(ids)
    outside = (values < 0) | (values >= size)
    if ignore is not None:
        outside &= values != ignore
    if outside.any():
        index = tuple(int(axis) for axis in np.argwhere(outside)[0])
        allowed = f"0 to {size - 1}" + ("" if ignore is None else f" (or {ignore} to ignore a position)")
        raise TokenError(
            f"{what} hold {int(values[index])} at index {index}, outside {allowed}",
            hint=f"use ids below the vocabulary size of {size}, or a model with a larger vocabulary",
        )


def check_length(length: int, context: int, *, what: str = "the sequence") -> None:
    """Refuse sequences that are empty or longer than `context`."""
    if length < 1:
        raise LengthError(f"{what} is empty", hint="pass at least one token")
    if length > context:
        raise LengthError(
            f"{what} has {length:,} tokens but this model reads at most {context:,}",
            hint=f"shorten it to {context:,}, or build the model with a larger context",
        )


def check_width(x: Array, width: int) -> None:
    """Refuse arrays whose last axis is not `width` long."""
    namespace(x)
    if x.ndim < 1 or x.shape[-1] != width:
        raise ShapeError(
            f"the input has shape {tuple(x.shape)}, expected (..., {width})",
            hint=f"the last axis must hold the {width} features",
        )


def check_broadcast(x: Array, shape: tuple[int, ...], *, what: str) -> None:
    """Refuse arrays that do not broadcast to exactly `shape`."""
    namespace(x)
    try:
        fits = np.broadcast_shapes(tuple(x.shape), shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{what} has shape {tuple(x.shape)}, which does not broadcast to {tuple(shape)}",
            hint="its axes are (..., queries, keys), aligned at the end; use size 1 for an axis it does not depend on",
        )


def check_mask(mask: Array, shape: tuple[int, ...], *, what: str = "the mask") -> None:
    """Refuse masks that are not boolean or do not broadcast to `shape`."""
    namespace(mask)
    if mask.dtype != np.bool_:
        raise DTypeError(
            f"{what} must be boolean (True = may attend), got {mask.dtype}",
            hint="pass `mask != 0` for one of 1 and 0, `mask == 0` for one of 0 and −inf, or give it as the bias",
        )
    check_broadcast(mask, shape, what=what)


class LazyArray:
    """A value of a record that was not kept, because it is large and can be had again: `compute` makes it.

    It has the shape and the type of the array that it stands for, and becomes that array where NumPy asks for one.
    """

    shape: tuple[int, ...]
    dtype: Any

    def compute(self) -> Array:
        """Return the array."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.compute(), dtype=dtype)


def kept(x: Array | LazyArray) -> Array:
    """Return an array as it is, and a value that was not kept computed."""
    return x.compute() if isinstance(x, LazyArray) else x


# --- half precision ---------------------------------------------------------------------------------------------------


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
    held = dict(zip(_arguments(op), arrays, strict=False)) | settings
    y, *rest = result if isinstance(result, tuple) else (result,)
    held["y"] = y if "y" in wide else cast(y, half)

    def typed(name: str, part: Any) -> Any:
        """Return what was given for a field of the record, or the result, and the rest rounded unless it stays wide."""
        if hasattr(part, "_fields"):
            return type(part)(*map(typed, part._fields, part))
        if part is y:
            return held["y"]
        for seen, x in zip(widened, arrays, strict=True):
            if part is seen:  # a record that is an argument, as that of GELU, holds what was given, not a rounded copy
                return x
        if name in wide or getattr(part, "dtype", None) != np.float32:
            return part
        argument = held.get(name)
        return cast(part, half) if argument is None or _widened(argument).dtype != part.dtype else argument

    return (held["y"], *(typed("", part) for part in rest)) if isinstance(result, tuple) else held["y"]


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
        like = getattr(saved, name, None)
        like = dy if like is None else like
        typed.append(cast(dx, like.dtype) if dx is not None and hasattr(like, "dtype") and is_half(like) else dx)
    return tuple(typed) if isinstance(result, tuple) else typed[0]


@functools.cache
def _arguments(op: Callable[..., Any]) -> list[str]:
    """Return the names of the arrays that an op takes, given it or its gradient, which stands beside it."""
    is_gradient = op.__name__.endswith(_BACKWARD)
    forward = getattr(sys.modules[op.__module__], op.__name__.removesuffix(_BACKWARD)) if is_gradient else op
    return [p.name for p in inspect.signature(forward).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
