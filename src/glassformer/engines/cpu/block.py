"""The kernel of `layers.Block`: a block in one call.

    y = x + attention(norm x)      z = y + act(norm y · up) down

It takes layer norms before the sublayers, self-attention as `attention.layer` does, and a feed-forward layer without a
gate. Everything else is left to the block as written. The arguments of the loops besides those of `attention.layer`:

    activation    the address of its code, forward or backward (`activation_address`)
    params        gamma and beta of each norm; matrices and biases of query, key, value and output, of up and down
    record        h, mean and rstd of the first norm; q, k, v, weights and mixtures; y;
                  h, mean and rstd of the second norm, h · up, and its activation
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Array, Tree
from ...dispatch import replaces
from ...layers import Attention, Block, FeedForward, InputGrads, LayerNorm, Linear, Residual
from ...ops.linear import LinearSaved
from ...ops.norm import LayerNormSaved
from .activation import LOOPS, activation_address
from .attention import layer as attention_layer
from .compile import are_arrays, call, compiled, is_array
from .fused import Parameters, empty_like, linear_places, norm_places, once_for_each
from .norm import normalize, normalize_backward

_NORMS = ("attention_norm", "feed_forward_norm")
_RECORD = {*_NORMS, "attention", "feed_forward", "output"}
_PARTS = (Residual, Attention, FeedForward, LayerNorm, Linear)
# What layers call only where no fused kernel takes them, with tiles and with dropout ...
NEVER_FUSED = ("attention_tiled", "attention_tiled_backward", "dropout", "dropout_backward", "dropped", "fold_key")
# ... and where this one does not: with gates, or weights in blocks.
_NOT_HERE = (*NEVER_FUSED, "gated", "gated_backward", "quantized_product")


class FusedBlock(NamedTuple):
    """What the loops must know of a block."""

    attention: attention_layer.FusedAttention
    parameters: Parameters
    activation: str
    norm: LayerNorm
    drops: bool
    shapes: Callable[[int, int], tuple[tuple[tuple[int, ...], ...], ...]]  # of the parts of a record, by B and T


@once_for_each
def fused_block(block: Block) -> FusedBlock | None:
    """Return what the loops must know of a block, None where it has something that they have not."""
    attention, feed_forward, norm = block.attention, block.feed_forward, block.norm
    if type(attention) is not Attention or type(feed_forward) is not FeedForward or type(norm) is not LayerNorm:
        return None
    if block.norm_position != "pre" or not are_known(block, "attention", "feed_forward"):
        return None
    fused = attention_layer.fused_attention(attention)
    up_down = linear_places(feed_forward.parts, ("up", "down"), "feed_forward")
    if fused is None or up_down is None or feed_forward.activation not in LOOPS:
        return None
    if not norm.width == feed_forward.width == attention.width:
        return None

    @lru_cache(maxsize=64)
    def shapes(B: int, T: int) -> Any:
        row, number, hidden = (B, T, norm.width), (B, T, 1), (B, T, feed_forward.hidden)
        attended = attention_layer.record_shapes(fused, B, T)
        return (row, number, number), attended, (row,), (row, number, number, hidden, hidden)

    attending = linear_places(attention.parts, attention_layer.PARTS, "attention")
    norms = [place for name in _NORMS for place in norm_places(norm, name)]
    groups = [norms, attending[0] + up_down[0], attending[1] + up_down[1]]
    order = "attention_norm", "attention", "feed_forward_norm", "feed_forward"
    parameters, drops = Parameters(groups, (norm.width, 0, 0), order), bool(block.dropout or attention.dropout)
    return FusedBlock(fused, parameters, feed_forward.activation, norm, drops, shapes)


def are_known(block: Block, *names: str) -> bool:
    """Tell whether a block has sublayers of these names and no others, each in a residual as the library has it."""
    return [(type(residual), residual.name) for residual in block.residuals] == [(Residual, name) for name in names]


@replaces(Block.forward, *_PARTS, excluding=_NOT_HERE)
def block_forward(
    self: Block, params: Tree, x: Array, memory: Array | None = None, bias: Array | None = None, *,
    mask: Array | None = None, memory_mask: Array | None = None, rotation: attention_layer.Rotation = None,
    key: Array | None = None, cache: Any = None,
) -> Any:  # fmt: skip
    if memory is not None or bias is not None or mask is not None or cache is not None:
        return NotImplemented
    fused = fused_block(self)
    if fused is None or (key is not None and fused.drops):
        return NotImplemented
    plan = attention_layer.plan_of(fused.attention, x, rotation)
    parameters = plan and fused.parameters.gather(params, x.dtype)
    if parameters is None:
        return NotImplemented
    shapes = fused.shapes(*x.shape[:2])  # the first norm, attention, y, and the second norm with the hidden layer
    first, attended, (y,), second = [tuple([np.empty(shape, x.dtype) for shape in part]) for part in shapes]
    z = np.empty(x.shape, x.dtype)
    activation = activation_address(fused.activation, x.dtype)
    run_block(plan, activation, fused.norm.eps, x, parameters, (first, attended, y, second), z)
    h2, mean2, rstd2, up, act = second
    return z, {
        "attention_norm": LayerNormSaved(x, first[1], first[2], None, None),
        "attention": attention_layer.written(first[0], rotation, *attended),
        "feed_forward_norm": LayerNormSaved(y, mean2, rstd2, None, None),
        "feed_forward": {"up": LinearSaved(h2, None, None), "activation": up, "down": LinearSaved(act, None, None)},
        "output": z,
    }


@replaces(Block.backward, *_PARTS, excluding=_NOT_HERE)
def block_backward(self: Block, params: Tree, saved: Tree, dy: Array) -> Any:
    fused = fused_block(self)
    if fused is None or saved.keys() != _RECORD or saved["attention"].key is not None:
        return NotImplemented
    x = saved["attention_norm"].x
    plan = attention_layer.plan_of(fused.attention, x, saved["attention"].rotation, backward=True)
    record = plan and _read(fused, saved, x)
    parameters = record and fused.parameters.gather(params, x.dtype, frozen=False)
    if parameters is None or not is_array(dy, x.dtype, x.shape):
        return NotImplemented
    dx = np.empty(x.shape, x.dtype)
    dparams = empty_like(parameters)
    activation = activation_address(fused.activation, x.dtype, backward=True)
    run_block_backward(plan, activation, dy, x, parameters[:2], record, dx, dparams)
    return InputGrads(dx), fused.parameters.tree(dparams)


def _read(fused: FusedBlock, saved: Tree, x: Array) -> Any:
    """Return what `block_forward` put into a record; None where something else has taken its place."""
    attention, feed_forward, norm, norm2 = (saved[n] for n in ("attention", "feed_forward", *_NORMS))
    attended = attention_layer.read(attention)
    if attended is None:
        return None
    first = attention.query.x, norm.mean, norm.rstd
    second = feed_forward["up"].x, norm2.mean, norm2.rstd, feed_forward["activation"], feed_forward["down"].x
    shapes = chain.from_iterable(fused.shapes(*x.shape[:2]))
    fits = are_arrays((*first, *attended, norm2.x, *second), x.dtype, shapes)
    return (first, attended, norm2.x, second) if fits else None


@compiled
def run_block(plan, activation, eps, x, params, record, z):
    """Fill in the record and the result z; x is (B, T, D)."""
    address = plan[0][0]
    norms, ws, bs = params
    first, attended, y, second = record
    x, z, y, h = _rows(x), _rows(z), _rows(y), _rows(first[0])
    normalize(x, norms[0], norms[1], eps, h, _flat(first[1]), _flat(first[2]))
    attention_layer.attend_layer(plan, h, (ws[:4], bs[:4]), attended, y)
    _add_to(y, x)
    h, up, act = _rows(second[0]), _rows(second[3]), _rows(second[4])
    normalize(y, norms[2], norms[3], eps, h, _flat(second[1]), _flat(second[2]))
    attention_layer.multiply(address, h, ws[4], bs[4], up)
    call(activation, (_flat(second[3]), _flat(second[4])))
    attention_layer.multiply(address, act, ws[5], bs[5], z)
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
    attention_layer.multiply_backward(address, dz, _rows(second[4]), ws[5], zero, _rows(dup), dws[5], dbs[5])
    call(activation, (_flat(dup), _flat(second[3])))
    attention_layer.multiply_backward(address, _rows(dup), _rows(second[0]), ws[4], zero, dh, dws[4], dbs[4])
    normalize_backward(dh, y, _flat(second[1]), _flat(second[2]), norms[2], dy, dnorms[2], dnorms[3])
    _add_to(dy, dz)
    attention_layer.attend_layer_backward(plan, dy, _rows(first[0]), ws[:4], attended, dh, (dws[:4], dbs[:4]))
    normalize_backward(dh, x, _flat(first[1]), _flat(first[2]), norms[0], dx, dnorms[0], dnorms[1])
    _add_to(dx, dy)


@compiled
def _rows(x):
    return x.reshape((x.shape[0] * x.shape[1], x.shape[2]))


@compiled
def _flat(x):
    return x.reshape(x.size)


@compiled
def _add_to(x, y):
    for n in range(x.shape[0]):
        row, other = x[n], y[n]
        for i in range(row.size):
            row[i] += other[i]
