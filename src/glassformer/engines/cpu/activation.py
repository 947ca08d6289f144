"""Activations and their gated forms, one pass over all numbers.

Which activation a loop computes is told by the type of its first argument, see `compile.choice`: only those in use are
compiled.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, typeof, types
from numba.extending import overload

from ... import ops
from ...arrays import Array
from ...dispatch import replaces
from ...ops.activation import GatedSaved
from .compile import address_of, choice, chosen, compiled, exp, inlined, minimum
from .layout import is_plain

ACTIVATIONS = {name: choice(number) for number, name in enumerate(("relu", "gelu", "gelu_tanh", "silu"))}
"""Those that are compiled, each by the choice that stands for it."""

NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}
"""The same by number, for the kernel of decoding, which is compiled once for all of them."""

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715
_DENSITY = 1 / math.sqrt(2 * math.pi)


def _kernels_of(op: Any, op_backward: Any) -> tuple[Any, Any]:
    """Return the kernels of an activation and of its backward."""
    activation = ACTIVATIONS[op.__name__]

    @replaces(op)
    def forward(x: Array) -> Any:
        if not is_plain(x):
            return NotImplemented
        y = np.empty_like(x)
        activate(activation, x.reshape(-1), y.reshape(-1))
        return y, x

    @replaces(op_backward)
    def backward(dy: Array, x: Array) -> Any:
        if not is_plain(dy, x) or dy.shape != x.shape:
            return NotImplemented
        dx = np.empty_like(x)
        _activate_backward(activation, dy.reshape(-1), x.reshape(-1), dx.reshape(-1))
        return dx

    return forward, backward


relu, relu_backward = _kernels_of(ops.relu, ops.relu_backward)
gelu, gelu_backward = _kernels_of(ops.gelu, ops.gelu_backward)
gelu_tanh, gelu_tanh_backward = _kernels_of(ops.gelu_tanh, ops.gelu_tanh_backward)
silu, silu_backward = _kernels_of(ops.silu, ops.silu_backward)


@replaces(ops.gated)
def gated(gate: Array, up: Array, *, activation: str = "silu") -> Any:
    if activation not in ACTIVATIONS or not is_plain(gate, up) or gate.shape != up.shape:
        return NotImplemented
    y = np.empty_like(gate)
    _gate(ACTIVATIONS[activation], gate.reshape(-1), up.reshape(-1), y.reshape(-1))
    return y, GatedSaved(gate, up)


@replaces(ops.gated_backward)
def gated_backward(dy: Array, saved: GatedSaved, *, activation: str = "silu") -> Any:
    gate, up = saved
    if activation not in ACTIVATIONS or not is_plain(dy, gate, up) or not dy.shape == gate.shape == up.shape:
        return NotImplemented
    dgate, dup = np.empty_like(gate), np.empty_like(up)
    _gate_backward(ACTIVATIONS[activation], *(x.reshape(-1) for x in (dy, gate, up, dgate, dup)))
    return dgate, dup


# --- one number ------------------------------------------------------------------------------------------------------
# `real` is its type, in which constants must be given lest they widen it.


def normal_cdf(x: float) -> float:
    """Return Φ(x), the chance that a standard normal variable stays below x."""
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


@inlined
def _normal_cdf32(x):
    """Φ(−t) = exp(−t²/2) · g(t), t ≥ 0; g is the series of `ops.activation` in powers of (t − 4) / (t + 4)."""
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


@inlined
def _sigmoid(x, real):
    return real(1) / (real(1) + exp(-x))


@inlined
def _relu(x, real):
    return x if x > 0 else real(0)


@inlined
def _relu_backward(dy, x, real):
    return dy if x > 0 else real(0)  # no product: what is stopped may be infinite


@inlined
def _gelu(x, real):
    return x * normal_cdf(x)


@inlined
def _gelu_backward(dy, x, real):
    return dy * (normal_cdf(x) + x * real(_DENSITY) * exp(real(-0.5) * x * x))


@inlined
def _gelu_tanh(x, real):
    """(1 + tanh u)/2 = σ(2u), which keeps its digits where tanh is nearly −1."""
    return x * _sigmoid(real(2 * _TANH_SCALE) * x * (real(1) + real(_TANH_CUBIC) * x * x), real)


@inlined
def _gelu_tanh_backward(dy, x, real):
    e = exp(real(-2 * _TANH_SCALE) * x * (real(1) + real(_TANH_CUBIC) * x * x))
    s = real(1) / (real(1) + e)
    inner = real(2 * _TANH_SCALE) * (real(1) + real(3 * _TANH_CUBIC) * x * x)
    return dy * (s + x * s * (real(1) - s) * inner)


@inlined
def _silu(x, real):
    return x * _sigmoid(x, real)


@inlined
def _silu_backward(dy, x, real):
    s = _sigmoid(x, real)
    return dy * (s * (real(1) + x * (real(1) - s)))


_VALUES = (_relu, _gelu, _gelu_tanh, _silu)
_GRADIENTS = (_relu_backward, _gelu_backward, _gelu_tanh_backward, _silu_backward)


def _value(activation, x, real):
    """Return act(x)."""


def _gradient(activation, dy, x, real):
    """Return act′(x) · dy."""


@overload(_value, inline="always")
def _value_by(activation, x, real):
    value = _VALUES[chosen(activation)]
    return lambda activation, x, real: value(x, real)


@overload(_gradient, inline="always")
def _gradient_by(activation, dy, x, real):
    gradient = _GRADIENTS[chosen(activation)]
    return lambda activation, dy, x, real: gradient(dy, x, real)


# --- all numbers -----------------------------------------------------------------------------------------------------


@compiled
def activate(activation, x, y):
    """Fill in y = act(x)."""
    for i in range(x.size):
        y[i] = _value(activation, x[i], x.dtype.type)


@compiled
def _activate_backward(activation, dy, x, dx):
    for i in range(x.size):
        dx[i] = _gradient(activation, dy[i], x[i], x.dtype.type)


@compiled
def activate_backward_in_place(activation, dy, x):
    """Turn dy into act′(x) · dy: what a compiler must suspect to overlap, it does not vectorize."""
    for i in range(x.size):
        dy[i] = _gradient(activation, dy[i], x[i], x.dtype.type)


@cache
def activation_address(name: str, dtype: np.dtype, *, backward: bool) -> int:
    """Return where the code of `activate`, or of `activate_backward_in_place`, for an activation lies."""
    row = types.Array(from_dtype(dtype), 1, "C")
    return address_of(activate_backward_in_place if backward else activate, typeof(ACTIVATIONS[name]), row, row)


@compiled
def _gate(activation, gate, up, y):
    for i in range(y.size):
        y[i] = _value(activation, gate[i], y.dtype.type) * up[i]


@compiled
def _gate_backward(activation, dy, gate, up, dgate, dup):
    """Fill in dgate = act′(gate) · dy · up and dup = dy · act(gate)."""
    for i in range(dy.size):
        dgate[i] = _gradient(activation, dy[i] * up[i], gate[i], dy.dtype.type)
    for i in range(dy.size):
        dup[i] = dy[i] * _value(activation, gate[i], dy.dtype.type)
