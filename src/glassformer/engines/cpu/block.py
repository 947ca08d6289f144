"""The kernel of `layers.Block`: a block in one call.

It takes layer norms before the sublayers, self-attention as `attention.layer` does, and a feed-forward layer without a
gate. Everything else is left to the block as written.
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
from .activation import ACTIVATIONS, activation_address
from .attention import layer as attention_layer
from .attention.layer import FusedAttention, Rotation, fused_attention, plan_of
from .block_loops import run_block, run_block_backward
from .fused import Arrays, Matrices, Place, empty_like, filled, found_at, matrices_of, named, once_for_each
from .layout import are_arrays, is_array

_NORMS = ("attention_norm", "feed_forward_norm")
_RECORD = {*_NORMS, "attention", "feed_forward", "output"}
_PARTS = (Residual, Attention, FeedForward, LayerNorm, Linear)


class FusedBlock(NamedTuple):
    """What the loops must know of a block."""

    attention: FusedAttention
    feed_forward: Matrices
    activation: str
    norm: LayerNorm
    drops: bool
    places: tuple[Place, ...]
    shapes: Callable[[int, int], tuple[tuple[tuple[int, ...], ...], ...]]  # of the parts of a record, by B and T


@once_for_each
def fused_block(block: Block) -> FusedBlock | None:
    """Return what the loops must know of a block, None where it has something that they have not."""
    attention, feed_forward, norm = block.attention, block.feed_forward, block.norm
    if type(attention) is not Attention or type(feed_forward) is not FeedForward or type(norm) is not LayerNorm:
        return None
    if block.norm_position != "pre" or not are_known(block, "attention", "feed_forward"):
        return None
    fused, matrices = fused_attention(attention), matrices_of(feed_forward.parts, ("up", "down"))
    if fused is None or matrices is None or feed_forward.activation not in ACTIVATIONS:
        return None
    if not norm.width == feed_forward.width == attention.width:
        return None

    @lru_cache(maxsize=64)
    def shapes(B: int, T: int) -> Any:
        row, number, hidden = (B, T, norm.width), (B, T, 1), (B, T, feed_forward.hidden)
        attended = attention_layer.record_shapes(fused, B, T)
        return (row, number, number), attended, (row,), (row, number, number, hidden, hidden)

    drops = bool(block.dropout or attention.dropout)
    places = _places(norm, fused.matrices, matrices)
    return FusedBlock(fused, matrices, feed_forward.activation, norm, drops, places, shapes)


def _places(norm: LayerNorm, attention: Matrices, feed_forward: Matrices) -> tuple[Place, ...]:
    """Return where the parameters of a block stand: those of the norms, all matrices, all biases."""
    names = ("gamma", "beta")[: 1 + norm.bias]
    places: list[Place] = [(part, None, name, len(names), (norm.width,)) for part in _NORMS for name in names]
    for wanted in ("w", "b"):
        for part, maps in (("attention", attention), ("feed_forward", feed_forward)):
            places += [(part, own, name, many, shape) for own, _, name, many, shape in maps.places if name == wanted]
    return tuple(places)


def are_known(block: Block, *names: str) -> bool:
    """Tell whether a block has sublayers of these names and no others, each in a residual as the library has it."""
    return [(type(residual), residual.name) for residual in block.residuals] == [(Residual, name) for name in names]


@replaces(Block.forward, *_PARTS)
def block_forward(
    self: Block,
    params: Tree,
    x: Array,
    memory: Array | None = None,
    bias: Array | None = None,
    *,
    mask: Array | None = None,
    memory_mask: Array | None = None,
    rotation: Rotation = None,
    key: Array | None = None,
    cache: Any = None,
) -> Any:
    if memory is not None or bias is not None or mask is not None or cache is not None:
        return NotImplemented
    fused = fused_block(self)
    if fused is None or (key is not None and fused.drops):
        return NotImplemented
    plan = plan_of(fused.attention, x, rotation)
    parameters = plan and _parameters(fused, params, x.dtype)
    if parameters is None:
        return NotImplemented
    shapes = fused.shapes(*x.shape[:2])  # the first norm, attention, y, and the second norm with the hidden layer
    first, attended, (y,), second = [tuple([np.empty(shape, x.dtype) for shape in part]) for part in shapes]
    z = np.empty(x.shape, x.dtype)
    activation = activation_address(fused.activation, x.dtype, backward=False)
    run_block(plan, activation, fused.norm.eps, x, parameters, (first, attended, y, second), z)
    h2, mean2, rstd2, up, act = second
    return z, {
        "attention_norm": LayerNormSaved(x, first[1], first[2], None, None),
        "attention": attention_layer.written(first[0], rotation, *attended),
        "feed_forward_norm": LayerNormSaved(y, mean2, rstd2, None, None),
        "feed_forward": {"up": LinearSaved(h2, None, None), "activation": up, "down": LinearSaved(act, None, None)},
        "output": z,
    }


@replaces(Block.backward, *_PARTS)
def block_backward(self: Block, params: Tree, saved: Tree, dy: Array) -> Any:
    fused = fused_block(self)
    if fused is None or saved.keys() != _RECORD or saved["attention"].key is not None:
        return NotImplemented
    x = saved["attention_norm"].x
    plan = plan_of(fused.attention, x, saved["attention"].rotation, backward=True)
    record = plan and _read(fused, saved, x)
    parameters = record and _parameters(fused, params, x.dtype)
    if parameters is None or not is_array(dy, x.dtype, x.shape):
        return NotImplemented
    dx = np.empty(x.shape, x.dtype)
    dparams = empty_like(parameters)
    activation = activation_address(fused.activation, x.dtype, backward=True)
    run_block_backward(plan, activation, dy, x, parameters[:2], record, dx, dparams)
    return InputGrads(dx), _gradients(fused, *dparams)


def _parameters(fused: FusedBlock, params: Tree, dtype: np.dtype) -> tuple[Arrays, Arrays, Arrays] | None:
    """Return norms, matrices and biases, zeros for a beta that is not there; None where one does not fit."""
    found = found_at(fused.places, params, dtype)
    if found is None:
        return None
    if fused.norm.bias:
        norms, rest = found[:4], found[4:]
    else:
        zeros = _zeros(fused.norm.width, dtype)
        norms, rest = [found[0], zeros, found[1], zeros], found[2:]
    biased = fused.attention.matrices.biased + fused.feed_forward.biased
    many = len(biased)
    return tuple(norms), tuple(rest[:many]), filled(biased, rest[many:], dtype)


def _gradients(fused: FusedBlock, dnorms: Arrays, dws: Arrays, dbs: Arrays) -> Tree:
    """Return gradients by the names of their parameters."""
    grads: dict[str, Tree] = {}
    for name, dgamma, dbeta in zip(_NORMS, dnorms[0::2], dnorms[1::2], strict=True):
        grads[name] = {"gamma": dgamma, "beta": dbeta} if fused.norm.bias else {"gamma": dgamma}
    attention = named(fused.attention.matrices, dws[:4], dbs[:4])
    feed_forward = named(fused.feed_forward, dws[4:], dbs[4:])
    return {
        "attention_norm": grads["attention_norm"],
        "attention": attention,
        "feed_forward_norm": grads["feed_forward_norm"],
        "feed_forward": feed_forward,
    }


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


@lru_cache
def _zeros(width: int, dtype: np.dtype) -> Array:
    return np.zeros(width, dtype)
