"""The few operations that NumPy and JAX spell differently, or that NumPy lacks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, Tree, cast, namespace
from .errors import ConfigError


def is_jax(x: Array) -> bool:
    """Tell whether `x` is a JAX array."""
    return namespace(x).__name__.startswith("jax")


def scatter_add(shape: tuple[int, ...], ids: Array, rows: Array) -> Array:
    """Add `rows` (..., D) into zeros of `shape` (V, D) at `ids` (...); ids that repeat add up."""
    rows = rows.reshape(-1, shape[-1])
    ids = ids.reshape(-1)
    if is_jax(rows):
        return namespace(rows).zeros(shape, rows.dtype).at[ids].add(rows)
    table = np.zeros(shape, rows.dtype)
    np.add.at(table, ids, rows)
    return table


def half_type(x: Array, name: str) -> Any:
    """Return the type "bfloat16" or "float16" of the library of x."""
    if name == "bfloat16" and not is_jax(x):
        raise ConfigError(
            "NumPy has no bfloat16", hint='compute in "float16" or in float32 here, or use the engine jax'
        )
    return getattr(namespace(x), name)


class Spreading(NamedTuple):
    """What is said of arrays while a program for several devices is traced: where they lie, and when they move."""

    activations: Callable[[Array], Array]  # (B, T, D)
    weights: Callable[[Tree], Tree]  # parameters of a block, before it uses them
    slopes: Callable[[Tree], Tree]  # gradients of a block, as soon as it has them


_spreading: ContextVar[Spreading | None] = ContextVar("spreading", default=None)


@contextmanager
def spreading(how: Spreading | None) -> Iterator[None]:
    """Trace for several devices inside a `with` block."""
    token = _spreading.set(how)
    try:
        yield
    finally:
        _spreading.reset(token)


def spread(x: Array) -> Array:
    """Return activations as they are; for several devices, say where they lie."""
    how = _spreading.get()
    return x if how is None else how.activations(x)


def gathered(params: Tree) -> Tree:
    """Return a block's parameters as they are; for several devices, brought together where they are used."""
    how = _spreading.get()
    return params if how is None else how.weights(params)


def shared_out(grads: Tree) -> Tree:
    """Return a block's gradients as they are; for several devices, added up and shared out."""
    how = _spreading.get()
    return grads if how is None else how.slopes(grads)


def on_one_gpu(x: Array) -> bool:
    """Tell whether x belongs to a program for a single GPU: kernels of our own are not split over several."""
    if not is_jax(x) or _spreading.get() is not None:
        return False
    import jax

    return jax.default_backend() == "gpu"


def together(x: Array, dy: Array) -> tuple[Array, Array]:
    """Return both as they are; under JAX, what is computed from either waits for both.

    A backward pass that runs a block again would else be seen to repeat the forward pass, and its results be kept.
    """
    if not is_jax(x):
        return x, dy
    from jax.lax import optimization_barrier

    return optimization_barrier((x, dy))


def matmul_wide(a: Array, b: Array) -> Array:
    """Multiply matrices; products of half-precision arrays are summed, and returned, in float32."""
    xp = namespace(a)
    if a.dtype.itemsize > 2:
        return a @ b
    if is_jax(a):
        return xp.matmul(a, b, preferred_element_type=np.float32)
    return a.astype(np.float32) @ b.astype(np.float32)


def logistic(x: Array) -> Array:
    """Return σ(x) = 1 / (1 + exp(−x)); NumPy computes it by tanh, which neither overflows nor branches."""
    if is_jax(x):
        from jax.lax import logistic

        return logistic(x)
    return 0.5 * (1 + namespace(x).tanh(0.5 * x))


def normal_cdf(x: Array) -> Array:
    """Return Φ(x) = (1 + erf(x / √2)) / 2, the chance that a standard normal variable stays below x.

    NumPy has no error function. On the positive axis  Φ(−t) = exp(−t²/2) · g(t)  with a smooth g, which a Chebyshev
    series fitted to `math.erfc` gives to the last digits; Φ(t) = 1 − Φ(−t) does the rest.
    """
    xp = namespace(x)
    if is_jax(x):
        from jax.scipy.special import erfc

        return 0.5 * erfc(-x * math.sqrt(0.5))
    positive = x.real > 0
    t = xp.where(positive, x, -x)
    t = xp.where(t.real < _CDF_END, t, _CDF_END)  # beyond, Φ(−t) is below the smallest double
    z = (t - _CDF_MIDDLE) / (t + _CDF_MIDDLE)
    tail = xp.exp(-0.5 * t * t) * _clenshaw(_cdf_series(float(np.finfo(x.dtype).eps)), z)
    return cast(xp.where(positive, 1.0 - tail, tail), x.dtype)


_CDF_END = 38.0
_CDF_MIDDLE = 4.0  # z = (t − 4) / (t + 4) maps [0, ∞) to [−1, 1)


@functools.cache
def _cdf_series(eps: float, terms: int = 32) -> tuple[float, ...]:
    """Fit g on the whole half line by its values at Chebyshev nodes; leave out terms that `eps` cannot see."""
    nodes = np.cos(np.pi * (np.arange(terms) + 0.5) / terms)
    values = [_scaled_tail(_CDF_MIDDLE * (1 + z) / (1 - z)) for z in nodes]
    # Whole turns are taken off as integers: cos of a large angle would cost the last digits.
    steps = np.outer(np.arange(terms), 2 * np.arange(terms) + 1) % (4 * terms)
    series = 2.0 / terms * np.cos(np.pi * steps / (2 * terms)) @ np.asarray(values)
    series[0] /= 2
    needed = int(np.flatnonzero(np.abs(series) > eps / 8)[-1]) + 1
    return tuple(float(c) for c in series[:needed])


def _scaled_tail(t: float) -> float:
    """Return exp(t²/2) · Φ(−t), by its asymptotic series where erfc would underflow."""
    if t < 30:
        return 0.5 * math.exp(t * t / 2) * math.erfc(t / math.sqrt(2))
    term = total = 1.0
    for n in range(1, 12):
        term *= -(2 * n - 1) / (t * t)
        total += term
    return total / (t * math.sqrt(2 * math.pi))


def _clenshaw(series: tuple[float, ...], z: Any) -> Any:
    """Sum Σ cₙ Tₙ(z) from the last term down."""
    b1 = b2 = 0.0
    for c in reversed(series[1:]):
        b1, b2 = 2 * z * b1 - b2 + c, b1
    return z * b1 - b2 + series[0]
