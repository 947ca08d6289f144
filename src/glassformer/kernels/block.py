"""A whole block as one kernel: layer norm before each sublayer, self-attention, a feed-forward layer without a gate.

    y = x + attention(norm x)      z = y + act(norm y · up) down

See `self_attention` for how arrays lie; `layers.block_whole` says which records are filled in.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from .activation import (
    _gelu,
    _gelu_backward,
    _gelu_tanh,
    _gelu_tanh_backward,
    _relu,
    _relu_backward,
    _silu,
    _silu_backward,
)
from .compile import chosen, compiled
from .norm import _layer_norm, _layer_norm_backward
from .self_attention import multiply, multiply_backward, self_attention, self_attention_backward

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


@compiled
def whole_block(address, x, norms, ws, bs, rotation, spans, settings, activation, eps, first, attended, second, z):
    """Fill in the records of both sublayers, and the result z; x is (N, D).

    norms      gamma and beta of each norm
    ws, bs     of query, key, value and output; of up and down
    first      h, mean and rstd of the first norm
    attended   q, k, v, weights and mixed, and y
    second     h, mean and rstd of the second norm, h · up, and its activation
    """
    h, mean, rstd = first
    q, k, v, weights, mixed, y = attended
    _layer_norm(x, norms[0], norms[1], eps, h, mean, rstd)
    self_attention(address, h, ws[:4], bs[:4], rotation, spans, settings, q, k, v, weights, mixed, y)
    _add_to(y, x)
    h, mean, rstd, up, act = second
    _layer_norm(y, norms[2], norms[3], eps, h, mean, rstd)
    multiply(address, h, ws[4], bs[4], up)
    _activate(activation, up.reshape(-1), act.reshape(-1))
    multiply(address, act, ws[5], bs[5], z)
    _add_to(z, y)


@compiled
def whole_block_backward(
    address, dz, x, norms, ws, rotation, spans, settings, activation, first, attended, second, dx, dnorms, dws, dbs
):
    """Fill in dx and all gradients, those of the norms being zero before."""
    h, mean, rstd, up, act = second
    q, k, v, weights, mixed, y = attended
    zero = x.dtype.type(0)
    dup, dh, dy = np.empty_like(up), np.empty_like(x), np.empty_like(x)
    multiply_backward(address, dz, act, ws[5], zero, dup, dws[5], dbs[5])
    slope = np.empty_like(up)
    _activate_backward(activation, dup.reshape(-1), up.reshape(-1), slope.reshape(-1))
    multiply_backward(address, slope, h, ws[4], zero, dh, dws[4], dbs[4])
    _layer_norm_backward(dh, y, mean, rstd, norms[2], dy, dnorms[2], dnorms[3])
    _add_to(dy, dz)
    h, mean, rstd = first
    self_attention_backward(
        address, dy, h, ws[:4], rotation, spans, settings, q, k, v, weights, mixed, dh, dws[:4], dbs[:4]
    )
    _layer_norm_backward(dh, x, mean, rstd, norms[0], dx, dnorms[0], dnorms[1])
    _add_to(dx, dy)


def _activate(choice, x, y):
    """Apply the activation that the type of `choice` stands for, see `compile.choice`."""


def _activate_backward(choice, dy, x, dx):
    """Apply its gradient."""


@overload(_activate)
def _chosen(choice, x, y):
    function = (_relu, _gelu, _gelu_tanh, _silu)[chosen(choice)]
    return lambda choice, x, y: function(x, y)


@overload(_activate_backward)
def _chosen_backward(choice, dy, x, dx):
    function = (_relu_backward, _gelu_backward, _gelu_tanh_backward, _silu_backward)[chosen(choice)]
    return lambda choice, dy, x, dx: function(dy, x, dx)


@compiled
def _add_to(x, y):
    for n in range(x.shape[0]):
        row, other = x[n], y[n]
        for i in range(row.size):
            row[i] += other[i]
