"""One token of one sequence through all blocks of a decoder, in one call.

Python would take longer to name all these steps than the processor to take them. What is computed is what the layers
say; see `stack` for what stands in the tables.
"""

from typing import NamedTuple

import numpy as np
from numba import carray

from ...arrays import Array
from .activation import _gelu, _gelu_tanh, _relu, _silu
from .compile import compiled
from .matvec import multiply, workspace
from .parts import MIX, ROOM, SIZE
from .thread_pool import JOB, KIND, on_all_cores, place, share_out
from .vectorized_rows import bits_of_float, floats_pointer

PAIRINGS = ("halves", "interleaved")


class Sizes(NamedTuple):
    """What all blocks share, as integers.

    activation    its number among `activation.NUMBERS`
    capacity      keys that the memory of a block has room for; the new one goes to `slot`, the first `looked_at` count
    """

    width: int
    heads: int
    key_heads: int
    channels: int
    hidden: int
    activation: int
    pairing: int
    rms: int
    capacity: int = 0
    slot: int = 0
    looked_at: int = 0


class Tables(NamedTuple):
    """Where everything lies: one row for each block.

    norms       (L, 4) addresses: scale and shift before attention, scale and shift before the feed-forward layer
    biases      (L, 7) addresses: of query, key, value, output, up, gate and down
    keys        (L, 2) addresses: keys (K, capacity, C) and values
    inward      (L, 3, 4) query, key and value, as `matvec.described` says
    output      (L, 1, 4)
    widening    (L, 1, 4) up, or (L, 2, 4) up and gate
    narrowing   (L, 1, 4) down

    An address of zero stands for what is not there.
    """

    norms: np.ndarray
    biases: np.ndarray
    keys: np.ndarray
    inward: np.ndarray
    output: np.ndarray
    widening: np.ndarray
    narrowing: np.ndarray


def read_token(
    x: Array, tables: Tables, sizes: Sizes, rotation: tuple[Array, Array], *, eps: float, scale: float, size: int
) -> None:
    """Turn the vector x (1, D) of a token into what the last block makes of it, in place; remember its keys.

    rotation    cosines and sines (C/2,) by which heads are turned, or empty
    eps         of all norms
    scale       factor on the scores
    size        bytes of all matrices
    """
    on_all_cores(_read_token, x, tables, sizes, rotation, eps, scale, size=size)


@compiled
def _read_token(x, tables, sizes, rotation, eps, scale, board):
    h, inner = np.empty((1, sizes.width), np.float32), np.empty((1, sizes.hidden), np.float32)
    mixed = np.empty((1, sizes.heads * sizes.channels), np.float32)
    # One for each width that is multiplied. They are made here once, and stay until the last block is done.
    work = workspace(1, sizes.width), workspace(1, sizes.heads * sizes.channels), workspace(1, sizes.hidden)
    for layer in range(len(tables.norms)):
        norms, biases = tables.norms[layer], tables.biases[layer]
        _normalize(x, norms[0], norms[1], eps, sizes.rms, h)
        _attend_to_all(h, tables, layer, sizes, rotation, scale, mixed, work[0], board)
        _add_product(mixed, tables.output[layer], biases[3], x, work[1], board)
        _normalize(x, norms[2], norms[3], eps, sizes.rms, h)
        _widen(h, tables.widening[layer], biases[4], biases[5], sizes, inner, work[0], board)
        _add_product(inner, tables.narrowing[layer], biases[6], x, work[2], board)


@compiled
def _normalize(x, gamma, beta, eps, rms, y):
    """Write gamma · x / √(mean x² + eps), or gamma · (x − mean x) / √(var x + eps) + beta."""
    f, D = np.float32, x.shape[1]
    mean, square = f(0), f(0)
    if rms == 0:
        for i in range(D):
            mean += x[0, i]
        mean /= f(D)
    for i in range(D):
        square += (x[0, i] - mean) * (x[0, i] - mean)
    factor = f(1) / np.sqrt(square / f(D) + f(eps))
    scales = carray(floats_pointer(gamma), (D,))
    for i in range(D):
        y[0, i] = (x[0, i] - mean) * factor * scales[i]
    _add_vector(beta, y[0])


@compiled
def _add_vector(address, y):
    """Add the vector at an address, if there is one."""
    if address != 0:
        b = carray(floats_pointer(address), (y.size,))
        for i in range(y.size):
            y[i] += b[i]


@compiled
def _add_product(h, matrix, bias, x, work, board):
    """Add h w + b to x."""
    y = np.empty(matrix[0, ROOM], np.float32)
    multiply(h, matrix, y, work, board)
    for i in range(x.shape[1]):
        x[0, i] += y[i]
    _add_vector(bias, x[0])


@compiled
def _widen(h, matrices, up_bias, gate_bias, sizes, inner, work, board):
    """Write act(h up), or act(h gate) · h up where there is a gate."""
    y = np.empty(matrices[:, ROOM].sum(), np.float32)
    multiply(h, matrices, y, work, board)
    start = matrices[0, ROOM] if len(matrices) == 2 else 0
    up, gate = y[: sizes.hidden], y[start : start + sizes.hidden]
    _add_vector(up_bias, up)
    if len(matrices) == 2:
        _add_vector(gate_bias, gate)
    _activate_in_place(gate, sizes.activation)
    for i in range(sizes.hidden):
        inner[0, i] = up[i] * gate[i] if len(matrices) == 2 else gate[i]


@compiled
def _activate_in_place(x, activation):
    f = np.float32
    if activation == 0:
        for i in range(x.size):
            x[i] = _relu(x[i], f)
    elif activation == 1:
        for i in range(x.size):
            x[i] = _gelu(x[i], f)
    elif activation == 2:
        for i in range(x.size):
            x[i] = _gelu_tanh(x[i], f)
    else:
        for i in range(x.size):
            x[i] = _silu(x[i], f)


@compiled
def _attend_to_all(h, tables, layer, sizes, rotation, scale, mixed, work, board):
    """Write what the heads gather for the token h, side by side, into mixed; its key and value join the others."""
    H, K, C = sizes.heads, sizes.key_heads, sizes.channels
    matrices, biases = tables.inward[layer], tables.biases[layer]
    first, second = matrices[0, ROOM], matrices[0, ROOM] + matrices[1, ROOM]
    y = np.empty(second + matrices[2, ROOM], np.float32)
    multiply(h, matrices, y, work, board)
    q, k, v = y[: H * C], y[first : first + K * C], y[second : second + K * C]
    _add_vector(biases[0], q)
    _add_vector(biases[1], k)
    _add_vector(biases[2], v)
    if rotation[0].size:
        _turn(q, rotation[0], rotation[1], sizes.pairing)
        _turn(k, rotation[0], rotation[1], sizes.pairing)
    keys = carray(floats_pointer(tables.keys[layer, 0]), (K, sizes.capacity, C))
    values = carray(floats_pointer(tables.keys[layer, 1]), (K, sizes.capacity, C))
    for n in range(K):
        for c in range(C):
            keys[n, sizes.slot, c] = k[n * C + c]
            values[n, sizes.slot, c] = v[n * C + c]
    _mix_heads(q, tables.keys[layer], sizes, np.float32(scale), mixed, board)


@compiled
def _turn(x, cos, sin, pairing):
    """Turn the pairs of channels of heads that stand side by side, as `ops.rotary` does."""
    half = cos.size
    apart, step = (half, 1) if pairing == 0 else (1, 2)
    for first in range(0, x.size, 2 * half):
        for i in range(half):
            at = first + step * i
            a, b = x[at], x[at + apart]
            x[at] = a * cos[i] - b * sin[i]
            x[at + apart] = b * cos[i] + a * sin[i]


@compiled
def _mix_heads(queries, keys, sizes, scale, mixed, board):
    """Let all heads gather values, y = softmax(q kᵀ · scale) v, from the keys (K, capacity, C)."""
    H, C, count = sizes.heads, sizes.channels, sizes.looked_at
    parts = max(1, min(H, 8 * H * C * count // SIZE))
    job = board[JOB:]
    job[0], job[1], job[2], job[3] = place(queries), place(mixed), keys[0], keys[1]
    job[4], job[5], job[6], job[7] = sizes.capacity * C * 4, H // sizes.key_heads, H, C
    job[8], job[9], job[10] = count, bits_of_float(scale), parts
    board[KIND] = MIX
    share_out(board, parts)
