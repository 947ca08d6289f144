"""A whole block as one kernel: layer norm before each sublayer, self-attention, a feed-forward layer without a gate.

    y = x + attention(norm x)      z = y + act(norm y · up) down

See `self_attention` for how arrays lie; `layers.block_whole` says which records are filled in.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from .activation import (
    _gelu_slope,
    _gelu_tanh_slope,
    _gelu_tanh_value,
    _gelu_value,
    _relu_slope,
    _relu_value,
    _silu_slope,
    _silu_value,
)
from .compile import chosen, compiled
from .norm import _layer_norm, _layer_norm_backward
from .self_attention import multiply, multiply_backward, self_attention, self_attention_backward

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@compiled
def whole_block(address, x, norms, ws, bs, rotation, spans, settings, activation, eps, first, attended, second, z):
    """Fill in the records of both sublayers, and the result z; x is (B, T, D).

    norms      gamma and beta of each norm
    ws, bs     of query, key, value and output; of up and down
    first      h, mean and rstd of the first norm
    attended   q, k, v, weights and mixed, and y
    second     h, mean and rstd of the second norm, h · up, and its activation
    """
    x, z, y, h = _rows(x), _rows(z), _rows(attended[5]), _rows(first[0])
    _layer_norm(x, norms[0], norms[1], eps, h, _flat(first[1]), _flat(first[2]))
    self_attention(address, h, ws[:4], bs[:4], rotation, spans, settings, *attended[:5], y)
    _add_to(y, x)
    h, up, act = _rows(second[0]), _rows(second[3]), _rows(second[4])
    _layer_norm(y, norms[2], norms[3], eps, h, _flat(second[1]), _flat(second[2]))
    multiply(address, h, ws[4], bs[4], up)
    _activate(activation, _flat(second[3]), _flat(second[4]))
    multiply(address, act, ws[5], bs[5], z)
    _add_to(z, y)


@compiled
def whole_block_backward(
    address, dz, x, norms, ws, rotation, spans, settings, activation, first, attended, second, dx, dnorms, dws, dbs
):
    """Fill in dx and all gradients."""
    x, dx, dz, y = _rows(x), _rows(dx), _rows(dz), _rows(attended[5])
    for dnorm in dnorms:
        dnorm[:] = 0
    zero = x.dtype.type(0)
    slope, dh, dy = np.empty_like(second[3]), np.empty_like(x), np.empty_like(x)
    dup = _rows(slope)
    multiply_backward(address, dz, _rows(second[4]), ws[5], zero, dup, dws[5], dbs[5])
    _times_slope(activation, _flat(slope), _flat(second[3]))
    multiply_backward(address, dup, _rows(second[0]), ws[4], zero, dh, dws[4], dbs[4])
    _layer_norm_backward(dh, y, _flat(second[1]), _flat(second[2]), norms[2], dy, dnorms[2], dnorms[3])
    _add_to(dy, dz)
    self_attention_backward(
        address, dy, _rows(first[0]), ws[:4], rotation, spans, settings, *attended[:5], dh, dws[:4], dbs[:4]
    )
    _layer_norm_backward(dh, x, _flat(first[1]), _flat(first[2]), norms[0], dx, dnorms[0], dnorms[1])
    _add_to(dx, dy)


def _activate(choice, x, y):
    """Fill in the values of the activation that the type of `choice` stands for, see `compile.choice`."""


def _times_slope(choice, dy, x):
    """Multiply dy by the slopes of that activation, in place: memory that is not touched stays in the cache."""


@overload(_activate)
def _chosen_value(choice, x, y):
    value = (_relu_value, _gelu_value, _gelu_tanh_value, _silu_value)[chosen(choice)]

    def fill(choice, x, y):
        for i in range(x.size):
            y[i] = value(x[i], x.dtype.type)

    return fill


@overload(_times_slope)
def _chosen_slope(choice, dy, x):
    slope = (_relu_slope, _gelu_slope, _gelu_tanh_slope, _silu_slope)[chosen(choice)]

    def multiply(choice, dy, x):
        for i in range(x.size):
            dy[i] *= slope(x[i], x.dtype.type)

    return multiply


@compiled
def _rows(x):
    """View x (B, T, D) as (N, D)."""
    return x.reshape((x.shape[0] * x.shape[1], x.shape[2]))


@compiled
def _flat(x):
    """View x as a single row."""
    return x.reshape(x.size)


@compiled
def _add_to(x, y):
    for n in range(x.shape[0]):
        row, other = x[n], y[n]
        for i in range(row.size):
            row[i] += other[i]
