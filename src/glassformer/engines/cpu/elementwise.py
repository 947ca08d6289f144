"""Kernels that read every number once: activations and their gated forms, dropout, and table lookup."""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types
from numba.extending import overload

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.activation import GatedSaved
from ...ops.dropout import MOST
from ...ops.embedding import EmbeddingSaved
from .compile import address_of, compiled, exp, inlined, is_array, is_plain, maximum, minimum, rows

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715
_DENSITY = 1 / math.sqrt(2 * math.pi)
_FAR = 800.0  # beyond, σ and Φ are 0 or 1


# --- activations of one number ---------------------------------------------------------------------------------------
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
def _from_left(x, real):
    return maximum(x, real(-_FAR))


@inlined
def _bounded(x, real):
    return minimum(_from_left(x, real), real(_FAR))


@inlined
def _gelu(x, real):
    return _from_left(x, real) * normal_cdf(x)


@inlined
def _gelu_backward(dy, x, real):
    x = _bounded(x, real)
    return dy * (normal_cdf(x) + x * real(_DENSITY) * exp(real(-0.5) * x * x))


@inlined
def _gelu_tanh(x, real):
    """(1 + tanh u)/2 = σ(2u), which keeps its digits where tanh is nearly −1."""
    x = _from_left(x, real)
    return x * _sigmoid(real(2 * _TANH_SCALE) * x * (real(1) + real(_TANH_CUBIC) * x * x), real)


@inlined
def _gelu_tanh_backward(dy, x, real):
    x = _bounded(x, real)
    e = exp(real(-2 * _TANH_SCALE) * x * (real(1) + real(_TANH_CUBIC) * x * x))
    s = real(1) / (real(1) + e)
    inner = real(2 * _TANH_SCALE) * (real(1) + real(3 * _TANH_CUBIC) * x * x)
    return dy * (s + x * s * (real(1) - s) * inner)


@inlined
def _silu(x, real):
    return _from_left(x, real) * _sigmoid(x, real)


@inlined
def _silu_backward(dy, x, real):
    x = _bounded(x, real)
    s = _sigmoid(x, real)
    return dy * (s * (real(1) + x * (real(1) - s)))


class Loops(NamedTuple):
    """The loops of an activation, each compiled when it is first used."""

    forward: Any  # (x, y): y = act(x)
    backward: Any  # (dy, x, dx): dx = act′(x) · dy
    gate: Any  # (gate, up, y): y = act(gate) · up
    gate_backward: Any  # (dy, gate, up, dgate, dup)


def _loops(name: str, value: Any, gradient: Any) -> Loops:
    def forward(x, y):
        for i in range(x.size):
            y[i] = value(x[i], x.dtype.type)

    def backward(dy, x, dx):
        for i in range(x.size):
            dx[i] = gradient(dy[i], x[i], x.dtype.type)

    def gate(gate, up, y):
        for i in range(y.size):
            y[i] = value(gate[i], y.dtype.type) * up[i]

    def gate_backward(dy, gate, up, dgate, dup):
        for i in range(dy.size):
            dgate[i] = gradient(dy[i] * up[i], gate[i], dy.dtype.type)
        for i in range(dy.size):
            dup[i] = dy[i] * value(gate[i], dy.dtype.type)

    every = forward, backward, gate, gate_backward
    for loop in every:
        loop.__qualname__ = f"{name}_{loop.__name__}"  # compiled code is kept by name
    return Loops(*[compiled(loop) for loop in every])


LOOPS = {
    "relu": _loops("relu", _relu, _relu_backward),
    "gelu": _loops("gelu", _gelu, _gelu_backward),
    "gelu_tanh": _loops("gelu_tanh", _gelu_tanh, _gelu_tanh_backward),
    "silu": _loops("silu", _silu, _silu_backward),
}


@cache
def activation_address(name: str, dtype: np.dtype) -> int:
    """Return where the code of an activation lies."""
    row = types.Array(from_dtype(dtype), 1, "C")
    return address_of(LOOPS[name].forward, row, row)


def _kernels_of(op: Any, op_backward: Any) -> tuple[Any, Any]:
    loops = LOOPS[op.__name__]

    @replaces(op)
    def forward(x: Array) -> Any:
        if not is_plain(x):
            return NotImplemented
        y = np.empty(x.shape, x.dtype)
        loops.forward(x.reshape(-1), y.reshape(-1))
        return y, x

    @replaces(op_backward)
    def backward(dy: Array, x: Array) -> Any:
        if not is_plain(dy, x) or dy.shape != x.shape:
            return NotImplemented
        dx = np.empty(x.shape, x.dtype)
        loops.backward(dy.reshape(-1), x.reshape(-1), dx.reshape(-1))
        return dx

    return forward, backward


relu, relu_backward = _kernels_of(ops.relu, ops.relu_backward)
gelu, gelu_backward = _kernels_of(ops.gelu, ops.gelu_backward)
gelu_tanh, gelu_tanh_backward = _kernels_of(ops.gelu_tanh, ops.gelu_tanh_backward)
silu, silu_backward = _kernels_of(ops.silu, ops.silu_backward)


@replaces(ops.gated)
def gated(gate: Array, up: Array, *, activation: str = "silu") -> Any:
    if activation not in LOOPS or not is_plain(gate, up) or gate.shape != up.shape:
        return NotImplemented
    y = np.empty(gate.shape, gate.dtype)
    LOOPS[activation].gate(gate.reshape(-1), up.reshape(-1), y.reshape(-1))
    return y, GatedSaved(gate, up)


@replaces(ops.gated_backward)
def gated_backward(dy: Array, saved: GatedSaved, *, activation: str = "silu") -> Any:
    gate, up = saved
    if activation not in LOOPS or not is_plain(dy, gate, up) or not dy.shape == gate.shape == up.shape:
        return NotImplemented
    dgate, dup = np.empty(gate.shape, gate.dtype), np.empty(up.shape, up.dtype)
    LOOPS[activation].gate_backward(*(x.reshape(-1) for x in (dy, gate, up, dgate, dup)))
    return dgate, dup


# --- dropout: the generator of `ops.dropout`, number by number -------------------------------------------------------

GOLDEN = 0x9E3779B9
_WORD = 0xFFFFFFFF
_BOOL = np.dtype(np.bool_)


@replaces(ops.dropout)
def dropout(x: Array, key: Array, *, rate: float) -> Any:
    if not is_plain(x) or x.ndim < 1 or not is_key(key) or not 0 <= rate < MOST:
        return NotImplemented
    y, keep = np.empty_like(x), np.empty(x.shape, np.bool_)
    if x.size:  # there may be very many rows of nothing
        _dropout(rows(x), key, np.uint32(round(rate * 2**32)), 1 / (1 - rate), rows(y), rows(keep))
    return y, keep


@replaces(ops.dropout_backward)
def dropout_backward(dy: Array, keep: Array, *, rate: float) -> Any:
    if not is_plain(dy) or not is_array(keep, _BOOL, dy.shape) or not 0 <= rate < MOST:
        return NotImplemented
    dx = np.empty_like(dy)
    _drop(dy.reshape(-1), keep.reshape(-1), 1 / (1 - rate), dx.reshape(-1))
    return dx


def is_key(key: Any) -> bool:
    return type(key) is np.ndarray and key.dtype == np.uint32 and key.shape == (2,)


@replaces(ops.fold_key)
def fold_key(key: Array, number: int) -> Any:
    """Fold a number into a key: for two words, Python's own integers are faster than arrays."""
    if not is_key(key):
        return NotImplemented
    first, second = int(key[0]), int(key[1])
    low = _mixed(_mixed((first + number * GOLDEN) & _WORD) ^ second)
    high = _mixed((low + first + GOLDEN) & _WORD)
    return np.array([low, high], np.uint32)


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
    return x ^ (x >> 16)


@inlined
def mix(x):
    """Mix a word so that every bit influences every other, as `ops.dropout` does."""
    # Products and sums of 32-bit words come out with 64 bits, so each is cut again: within 32 they vectorize.
    u = np.uint32
    x = u(u(x ^ u(x >> u(16))) * u(0x7FEB352D))
    x = u(u(x ^ u(x >> u(15))) * u(0x846CA68B))
    return u(x ^ u(x >> u(16)))


@compiled
def _dropout(x, key, border, factor, y, keep):
    N, D = x.shape
    real = x.dtype.type
    for n in range(N):
        row, out, kept = x[n], y[n], keep[n]
        start = mix(np.uint32(np.uint32(n) ^ key[0]))
        last = np.uint32(start + key[1])
        for d in range(D):
            counter = np.uint32(start + np.uint32(np.uint32(d) * np.uint32(GOLDEN)))
            bits = mix(np.uint32(mix(counter) ^ last))
            kept[d] = bits >= border
            out[d] = row[d] * real(factor) if kept[d] else real(0)


@compiled
def _drop(dy, keep, factor, dx):
    real = dy.dtype.type
    for i in range(dy.size):
        dx[i] = dy[i] * real(factor) if keep[i] else real(0)


# --- embedding -------------------------------------------------------------------------------------------------------


@replaces(ops.embedding)
def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> Any:
    if not is_plain(table) or table.ndim != 2 or type(ids) is not np.ndarray or ids.dtype.kind not in "iu":
        return NotImplemented
    y = np.empty((*ids.shape, table.shape[1]), table.dtype)
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    return (y, EmbeddingSaved(table, ids)) if _look_up(table, flat, scale, rows(y)) else NotImplemented


@replaces(ops.embedding_backward)
def embedding_backward(dy: Array, saved: EmbeddingSaved, *, scale: float = 1.0) -> Any:
    table, ids = saved
    if not is_plain(dy, table) or table.ndim != 2 or type(ids) is not np.ndarray or ids.dtype.kind not in "iu":
        return NotImplemented
    if dy.shape != (*ids.shape, table.shape[1]):
        return NotImplemented
    dtable = np.zeros(table.shape, table.dtype)
    flat = np.ascontiguousarray(ids, np.int64).reshape(-1)
    return dtable if collect(rows(dy), flat, scale, dtable) else NotImplemented


@compiled
def _look_up(table, ids, scale, y):
    """Fill in scale · table[ids]; False if one is outside."""
    real = table.dtype.type
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= table.shape[0]:
            return False
        row, out = table[ids[i]], y[i]
        for d in range(row.size):
            out[d] = row[d] * real(scale)
    return True


@compiled
def collect(dy, ids, scale, dtable):
    """Add scale · dy[i] to row ids[i] of the table, in the order of i; False, midway, if one is outside."""
    real = dtable.dtype.type
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= dtable.shape[0]:
            return False
        drow, dout = dtable[ids[i]], dy[i]
        for d in range(drow.size):
            drow[d] += dout[d] * real(scale)
    return True
