"""The kernel of `layers.Block`: a block in one call.

    y = x + attention(norm x)      z = y + act(norm y · up) down

It takes layer norms before the sublayers, self-attention as `attention.layer` does, and a feed-forward layer without a
gate. Everything else is left to the block as written. Names in the programs besides those of `attention.layer`:

    z                         (B, T, D): what the block returns
    g1 s1 h1 mean1 rstd1      gamma and beta (its shift) of the first norm, its result and statistics; g2 … the second's
    wu bu up act wd bd        matrix and bias of up, h2 · up, and its activation; matrix and bias of down
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
from .attention.strategies import HeadPlan
from .compile import are_arrays, is_array
from .fused import Parameters, empty_like, linear_places, norm_places, once_for_each
from .program import APPLY, NORMALIZE, NORMALIZE_BACKWARD, Program, Step, kernel_address, program

_NORMS = ("attention_norm", "feed_forward_norm")
_RECORD = {*_NORMS, "attention", "feed_forward", "output"}
_PARTS = (Residual, Attention, FeedForward, LayerNorm, Linear)
# What layers call only where no fused kernel takes them, with tiles and with dropout ...
NEVER_FUSED = ("attention_tiled", "attention_tiled_backward", "dropout", "dropout_backward", "dropped", "fold_key")
# ... and where this one does not: with gates, or weights in blocks.
_NOT_HERE = (*NEVER_FUSED, "gated", "gated_backward", "quantized_product")


_PARAMETERS = "g1 s1 g2 s2 wq wk wv wo wu wd"
_BIASES = "bq bk bv bo bu bd"
_FILLED_IN = "h1 mean1 rstd1 q k v weights mixed y h2 mean2 rstd2 up act"
_NAMES = f"x {_PARAMETERS} {_BIASES} {_FILLED_IN} z cos sin"
_GRADIENTS = " ".join(f"d{name}" for name in f"{_PARAMETERS} {_BIASES}".split())
_NAMES_BACKWARD = f"dz x {_PARAMETERS} {_FILLED_IN} dx {_GRADIENTS} dup dh dy dmixed dq dk dv cos sin"


class FusedBlock(NamedTuple):
    """What the loops must know of a block."""

    attention: attention_layer.FusedAttention
    parameters: Parameters
    program: Callable[..., Program | None]  # as of attention
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

    @lru_cache(maxsize=64)
    def find(B: int, T: int, dtype: np.dtype, alone: bool, turned: bool, *, backward: bool = False) -> Program | None:
        plan = attention_layer.plan_of(attention, B, T, dtype, alone)
        if plan is None:
            return None
        steps, names = (_steps_backward, _NAMES_BACKWARD) if backward else (_steps, _NAMES)
        return program(steps(block, plan, B, dtype, turned), names, dtype, (plan.first, plan.last))

    attending = linear_places(attention.parts, attention_layer.PARTS, "attention")
    norms = [place for name in _NORMS for place in norm_places(norm, name)]
    groups = [norms, attending[0] + up_down[0], attending[1] + up_down[1]]
    order = "attention_norm", "attention", "feed_forward_norm", "feed_forward"
    parameters, drops = Parameters(groups, (norm.width, 0, 0), order), bool(block.dropout or attention.dropout)
    return FusedBlock(fused, parameters, find, drops, shapes)


def _steps(block: Block, plan: HeadPlan, B: int, dtype: np.dtype, turned: bool) -> list[Step]:
    feed_forward, norm, N = block.feed_forward, block.norm, B * len(plan.first)
    normalize = Step(NORMALIZE, kernel_address(NORMALIZE, dtype), (N, norm.width), "", norm.eps)
    add = Step(APPLY, kernel_address(APPLY, dtype), (N * norm.width,), "")
    activate = Step(APPLY, activation_address(feed_forward.activation, dtype), (N * feed_forward.hidden,), "up act")
    up, down = (attention_layer.linear_step(plan, B, feed_forward.parts[name], dtype) for name in ("up", "down"))
    return [
        normalize._replace(arrays="x g1 s1 h1 mean1 rstd1"),
        *attention_layer.attention_steps(block.attention, plan, B, dtype, turned, x="h1"),
        add._replace(arrays="y x"),
        normalize._replace(arrays="y g2 s2 h2 mean2 rstd2"),
        up._replace(arrays="h2 wu bu up"),
        activate,
        down._replace(arrays="act wd bd z"),
        add._replace(arrays="z y"),
    ]


def _steps_backward(block: Block, plan: HeadPlan, B: int, dtype: np.dtype, turned: bool) -> list[Step]:
    feed_forward, norm, N = block.feed_forward, block.norm, B * len(plan.first)
    normalize = Step(NORMALIZE_BACKWARD, kernel_address(NORMALIZE_BACKWARD, dtype), (N, norm.width), "")
    add = Step(APPLY, kernel_address(APPLY, dtype), (N * norm.width,), "")
    slope = activation_address(feed_forward.activation, dtype, backward=True)
    parts = (feed_forward.parts[name] for name in ("up", "down"))
    up, down = (attention_layer.linear_step(plan, B, part, dtype, backward=True) for part in parts)
    return [
        down._replace(arrays="dz act wd dup dwd dbd"),
        Step(APPLY, slope, (N * feed_forward.hidden,), "dup up"),
        up._replace(arrays="dup h2 wu dh dwu dbu"),
        normalize._replace(arrays="dh y mean2 rstd2 g2 dy dg2 ds2"),
        add._replace(arrays="dy dz"),
        *attention_layer.attention_steps_backward(block.attention, plan, B, dtype, turned, x="h1", dx="dh"),
        normalize._replace(arrays="dh x mean1 rstd1 g1 dx dg1 ds1"),
        add._replace(arrays="dx dy"),
    ]


def are_known(block: Block, *names: str) -> bool:
    """Tell whether a block has sublayers of these names and no others, each in a residual as the library has it."""
    return [(type(residual), residual.name) for residual in block.residuals] == [(Residual, name) for name in names]


@replaces(Block.forward, *_PARTS)
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
    found = attention_layer.program_for(fused, self.attention, x, rotation)
    parameters = found and fused.parameters.gather(params, x.dtype)
    if found is None or parameters is None:
        return NotImplemented
    shapes = fused.shapes(*x.shape[:2])  # the first norm, attention, y, and the second norm with the hidden layer
    first, attended, (y,), second = [tuple([np.empty(shape, x.dtype) for shape in part]) for part in shapes]
    z = np.empty(x.shape, x.dtype)
    found.run(x, *chain(*parameters), *first, *attended, y, *second, z, *(rotation or ()))
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
    rotation = saved["attention"].rotation
    found = attention_layer.program_for(fused, self.attention, x, rotation, backward=True)
    record = found and _read(fused, saved, x)
    parameters = record and fused.parameters.gather(params, x.dtype, frozen=False)
    if found is None or record is None or parameters is None or not is_array(dy, x.dtype, x.shape):
        return NotImplemented
    dx, dh, dmiddle = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    dparams = empty_like(parameters)
    for dnorm in dparams[0]:
        dnorm[...] = 0
    first, attended, y, second = record
    inner = np.empty_like(second[3]), dh, dmiddle, *attention_layer.inner_gradients(attended)
    given = dy, x, *parameters[0], *parameters[1], *first, *attended, y, *second
    found.run(*given, dx, *chain(*dparams), *inner, *(rotation or ()))
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
