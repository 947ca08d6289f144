"""A fused block: layer norm before each sublayer, self-attention, a feed-forward layer without a gate.

    y = x + attention(norm x)      z = y + act(norm y · up) down

See `attention.layer_loops` for how arrays lie and for the plan. The other arguments:

    activation    the address of its code, forward or backward (`activation_address`)
    params        gamma and beta of each norm; matrices and biases of query, key, value and output, of up and down
    record        h, mean and rstd of the first norm; q, k, v, weights and mixtures; y;
                  h, mean and rstd of the second norm, h · up, and its activation
"""

import numpy as np

from .attention.layer_loops import attend_layer, attend_layer_backward, multiply, multiply_backward
from .compile import call, compiled
from .norm import normalize, normalize_backward


@compiled
def run_block(plan, activation, eps, x, params, record, z):
    """Fill in the record and the result z; x is (B, T, D)."""
    address = plan[0][0]
    norms, ws, bs = params
    first, attended, y, second = record
    x, z, y, h = _rows(x), _rows(z), _rows(y), _rows(first[0])
    normalize(x, norms[0], norms[1], eps, h, _flat(first[1]), _flat(first[2]))
    attend_layer(plan, h, (ws[:4], bs[:4]), attended, y)
    _add_to(y, x)
    h, up, act = _rows(second[0]), _rows(second[3]), _rows(second[4])
    normalize(y, norms[2], norms[3], eps, h, _flat(second[1]), _flat(second[2]))
    multiply(address, h, ws[4], bs[4], up)
    call(activation, (_flat(second[3]), _flat(second[4])))
    multiply(address, act, ws[5], bs[5], z)
    _add_to(z, y)


@compiled
def run_block_backward(plan, activation, dz, x, params, record, dx, dparams):
    """Fill in dx and all gradients; of the parameters, norms and matrices are needed."""
    address = plan[0][0]
    norms, ws = params
    dnorms, dws, dbs = dparams
    first, attended, y, second = record
    x, dx, dz, y = _rows(x), _rows(dx), _rows(dz), _rows(y)
    for dnorm in dnorms:
        dnorm[:] = 0
    zero = x.dtype.type(0)
    dup, dh, dy = np.empty_like(second[3]), np.empty_like(x), np.empty_like(x)
    multiply_backward(address, dz, _rows(second[4]), ws[5], zero, _rows(dup), dws[5], dbs[5])
    call(activation, (_flat(dup), _flat(second[3])))
    multiply_backward(address, _rows(dup), _rows(second[0]), ws[4], zero, dh, dws[4], dbs[4])
    normalize_backward(dh, y, _flat(second[1]), _flat(second[2]), norms[2], dy, dnorms[2], dnorms[3])
    _add_to(dy, dz)
    attend_layer_backward(plan, dy, _rows(first[0]), ws[:4], attended, dh, (dws[:4], dbs[:4]))
    normalize_backward(dh, x, _flat(first[1]), _flat(first[2]), norms[0], dx, dnorms[0], dnorms[1])
    _add_to(dx, dy)


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
