"""Activations and their gated forms, one pass over all numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ..arrays import Array
from ..ops.activation import GatedSaved
from .compile import compiled, exp, inlined, minimum
from .layout import is_plain
from .memory import empty_like

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715
_DENSITY = 1 / math.sqrt(2 * math.pi)


def relu(x: Array) -> Any:
    """Stand for `ops.relu`."""
    return _forward(_relu, x)


def relu_backward(dy: Array, x: Array) -> Any:
    """Stand for `ops.relu_backward`."""
    return _backward(_relu_backward, dy, x)


def gelu(x: Array) -> Any:
    """Stand for `ops.gelu`."""
    return _forward(_gelu, x)


def gelu_backward(dy: Array, x: Array) -> Any:
    """Stand for `ops.gelu_backward`."""
    return _backward(_gelu_backward, dy, x)


def gelu_tanh(x: Array) -> Any:
    """Stand for `ops.gelu_tanh`."""
    return _forward(_gelu_tanh, x)


def gelu_tanh_backward(dy: Array, x: Array) -> Any:
    """Stand for `ops.gelu_tanh_backward`."""
    return _backward(_gelu_tanh_backward, dy, x)


def silu(x: Array) -> Any:
    """Stand for `ops.silu`."""
    return _forward(_silu, x)


def silu_backward(dy: Array, x: Array) -> Any:
    """Stand for `ops.silu_backward`."""
    return _backward(_silu_backward, dy, x)


def gated(gate: Array, up: Array, *, activation: str = "silu") -> Any:
    """Stand for `ops.gated`."""
    if activation not in _GATED or gate.shape != up.shape or not is_plain(gate, up):
        return NotImplemented
    y = empty_like(gate)
    _GATED[activation][0](gate.reshape(-1), up.reshape(-1), y.reshape(-1))
    return y, GatedSaved(gate, up)


def gated_backward(dy: Array, saved: GatedSaved, *, activation: str = "silu") -> Any:
    """Stand for `ops.gated_backward`."""
    gate, up = saved
    if activation not in _GATED or dy.shape != up.shape or not is_plain(dy, gate, up):
        return NotImplemented
    dgate, dup = empty_like(gate), empty_like(up)
    _GATED[activation][1](*(x.reshape(-1) for x in (dy, gate, up, dgate, dup)))
    return dgate, dup


def _forward(kernel: Any, x: Array) -> Any:
    if not is_plain(x):
        return NotImplemented
    y = empty_like(x)
    kernel(x.reshape(-1), y.reshape(-1))
    return y, x


def _backward(kernel: Any, dy: Array, x: Array) -> Any:
    if dy.shape != x.shape or not is_plain(dy, x):
        return NotImplemented
    dx = empty_like(x)
    kernel(dy.reshape(-1), x.reshape(-1), dx.reshape(-1))
    return dx


def normal_cdf(x: float) -> float:
    """Return Φ(x), the chance that a standard normal variable stays below x."""
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


@inlined
def _normal_cdf32(x):
    """Φ(−t) = exp(−t²/2) · g(t), t ≥ 0; g is the series of `backend.normal_cdf` in powers of (t − 4) / (t + 4)."""
    f = np.float32
    t = minimum(abs(x), f(38.0))  # beyond, Φ(−t) is zero in float32
    z = (t - f(4.0)) / (t + f(4.0))
    z2 = z * z
    z4 = z2 * z2
    # In pairs rather than nested, as in `exp`.
    low = (f(9.441064261e-02) + f(-1.703976895e-01) * z) + z2 * (f(1.243791601e-01) + f(-7.170805958e-02) * z)
    middle = (f(3.086593706e-02) + f(-8.488349619e-03) * z) + z2 * (f(5.025865374e-04) + f(6.298726325e-04) * z)
    high = (f(-1.771117683e-04) + f(-3.577668505e-05) * z) + z2 * f(1.878671764e-05)
    tail = exp(f(-0.5) * x * x) * (low + z4 * (middle + z4 * high))
    return f(1.0) - tail if x > f(0.0) else tail


@overload(normal_cdf, inline="always")
def _normal_cdf(x):
    if x == types.float32:
        return lambda x: _normal_cdf32(x)
    return lambda x: 0.5 * math.erfc(-x * math.sqrt(0.5))


# Values and slopes of one number. `kind` is its type, in which constants must be given lest they widen it.


@inlined
def _sigmoid(x, kind):
    return kind(1) / (kind(1) + exp(-x))


@inlined
def _relu_value(x, kind):
    return x if x > 0 else kind(0)


@inlined
def _relu_slope(x, kind):
    return kind(1) if x > 0 else kind(0)


@inlined
def _gelu_value(x, kind):
    return x * normal_cdf(x)


@inlined
def _gelu_slope(x, kind):
    return normal_cdf(x) + x * kind(_DENSITY) * exp(kind(-0.5) * x * x)


@inlined
def _gelu_tanh_value(x, kind):
    """(1 + tanh u)/2 = σ(2u), which keeps its digits where tanh is nearly −1."""
    return x * _sigmoid(kind(2 * _TANH_SCALE) * x * (kind(1) + kind(_TANH_CUBIC) * x * x), kind)


@inlined
def _gelu_tanh_slope(x, kind):
    e = exp(kind(-2 * _TANH_SCALE) * x * (kind(1) + kind(_TANH_CUBIC) * x * x))
    s = kind(1) / (kind(1) + e)
    inner = kind(2 * _TANH_SCALE) * (kind(1) + kind(3 * _TANH_CUBIC) * x * x)
    return s + x * s * (kind(1) - s) * inner


@inlined
def _silu_value(x, kind):
    return x * _sigmoid(x, kind)


@inlined
def _silu_slope(x, kind):
    s = _sigmoid(x, kind)
    return s * (kind(1) + x * (kind(1) - s))


# One loop for each: only those in use are compiled.


@compiled
def _relu(x, y):
    for i in range(x.size):
        y[i] = _relu_value(x[i], x.dtype.type)


@compiled
def _relu_backward(dy, x, dx):
    for i in range(x.size):
        dx[i] = dy[i] if x[i] > 0 else x.dtype.type(0)


@compiled
def _gated_relu(gate, up, y):
    for i in range(y.size):
        y[i] = _relu_value(gate[i], y.dtype.type) * up[i]


@compiled
def _gated_relu_backward(dy, gate, up, dgate, dup):
    for i in range(dy.size):
        dgate[i] = dy[i] * up[i] if gate[i] > 0 else dy.dtype.type(0)
    for i in range(dy.size):
        dup[i] = dy[i] * _relu_value(gate[i], dy.dtype.type)


@compiled
def _gelu(x, y):
    for i in range(x.size):
        y[i] = _gelu_value(x[i], x.dtype.type)


@compiled
def _gelu_backward(dy, x, dx):
    for i in range(x.size):
        dx[i] = dy[i] * _gelu_slope(x[i], x.dtype.type)


@compiled
def _gated_gelu(gate, up, y):
    for i in range(y.size):
        y[i] = _gelu_value(gate[i], y.dtype.type) * up[i]


@compiled
def _gated_gelu_backward(dy, gate, up, dgate, dup):
    for i in range(dy.size):
        dgate[i] = dy[i] * up[i] * _gelu_slope(gate[i], dy.dtype.type)
    for i in range(dy.size):
        dup[i] = dy[i] * _gelu_value(gate[i], dy.dtype.type)


@compiled
def _gelu_tanh(x, y):
    for i in range(x.size):
        y[i] = _gelu_tanh_value(x[i], x.dtype.type)


@compiled
def _gelu_tanh_backward(dy, x, dx):
    for i in range(x.size):
        dx[i] = dy[i] * _gelu_tanh_slope(x[i], x.dtype.type)


@compiled
def _gated_gelu_tanh(gate, up, y):
    for i in range(y.size):
        y[i] = _gelu_tanh_value(gate[i], y.dtype.type) * up[i]


@compiled
def _gated_gelu_tanh_backward(dy, gate, up, dgate, dup):
    for i in range(dy.size):
        dgate[i] = dy[i] * up[i] * _gelu_tanh_slope(gate[i], dy.dtype.type)
    for i in range(dy.size):
        dup[i] = dy[i] * _gelu_tanh_value(gate[i], dy.dtype.type)


@compiled
def _silu(x, y):
    for i in range(x.size):
        y[i] = _silu_value(x[i], x.dtype.type)


@compiled
def _silu_backward(dy, x, dx):
    for i in range(x.size):
        dx[i] = dy[i] * _silu_slope(x[i], x.dtype.type)


@compiled
def _gated_silu(gate, up, y):
    for i in range(y.size):
        y[i] = _silu_value(gate[i], y.dtype.type) * up[i]


@compiled
def _gated_silu_backward(dy, gate, up, dgate, dup):
    for i in range(dy.size):
        dgate[i] = dy[i] * up[i] * _silu_slope(gate[i], dy.dtype.type)
    for i in range(dy.size):
        dup[i] = dy[i] * _silu_value(gate[i], dy.dtype.type)


_GATED = {
    "relu": (_gated_relu, _gated_relu_backward),
    "gelu": (_gated_gelu, _gated_gelu_backward),
    "gelu_tanh": (_gated_gelu_tanh, _gated_gelu_tanh_backward),
    "silu": (_gated_silu, _gated_silu_backward),
}
