"""The kernel of `layers.Stack.read_blocks`: one more token of one sequence, through all blocks in one call.

Generation takes this way where it can, which is most of the time: a decoder with norms before its sublayers, float32 or
quantized matrices that lie as (outputs, inputs), and positions that are learned or turned. Everything else is read by
the blocks as written.
"""

from collections.abc import Iterator
from itertools import chain
from operator import is_
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...arrays import Array, Tree
from ...dispatch import replaces
from ...errors import ConfigError, ShapeError
from ...layers import (
    Attention,
    Block,
    Cache,
    FeedForward,
    KeyValues,
    LayerNorm,
    Linear,
    Positions,
    Residual,
    RMSNorm,
    RotaryPositions,
    Stack,
)
from ...tree import flatten
from .activation import NUMBERS
from .block import are_known
from .decoding import PAIRINGS, Sizes, Tables, read_token
from .fused import matrices_of, once_for_each
from .layout import is_array
from .matvec import described

_VECTORS = ("query", "key", "value", "output", "up", "gate", "down")
_FLOAT = np.dtype(np.float32)
_NOTHING: Array = np.zeros(0, _FLOAT)


@replaces(Stack.read_blocks, Block, Residual, Attention, FeedForward, LayerNorm, RMSNorm, Linear, KeyValues, Positions)
def read_blocks(self: Stack, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None) -> Any:
    if type(x) is not np.ndarray or x.ndim < 2 or x.dtype != _FLOAT or x.size != x.shape[-1]:
        return NotImplemented
    if type(cache) is not Cache or cache.mask is not None or not is_readable(self):
        return NotImplemented
    plan = plan_of(self, params["blocks"], cache)
    if x.shape[-1] != plan.sizes.width or plan.tables is None or not plan.fits(cache, x.shape[:-2], rotation):
        return NotImplemented
    cos, sin = (_NOTHING, _NOTHING) if rotation is None else (np.ascontiguousarray(y, _FLOAT) for y in rotation)
    y = x.reshape(1, -1).copy()
    turn = cos.reshape(-1), sin.reshape(-1)
    if not plan.turn.acquire(blocking=False):
        raise ConfigError("this cache is being read in another thread", hint="give every thread a cache of its own")
    try:
        tables, sizes = plan.reserve(cache, x.shape[:-2])
        read_token(y, tables, sizes, turn, eps=self.block.norm.eps, scale=plan.scale, size=plan.size)
        for kept in cache.blocks:
            kept.attention.seen += 1
    finally:
        plan.turn.release()
    return y.reshape(x.shape)


@once_for_each
def is_readable(stack: Stack) -> bool:
    """Tell whether the loops have all that a stack has."""
    block = stack.block
    attention, feed_forward = block.attention, block.feed_forward
    if (type(block), type(attention), type(feed_forward)) != (Block, Attention, FeedForward):
        return False
    if type(block.norm) not in (LayerNorm, RMSNorm) or type(stack.positions) not in (type(None), RotaryPositions):
        return False
    gate = ("gate",) if feed_forward.gated else ()
    parts = (attention.parts, ("query", "key", "value", "output")), (feed_forward.parts, ("up", *gate, "down"))
    return (
        block.norm_position == "pre"
        and are_known(block, "attention", "feed_forward")
        and all(matrices_of(*part) is not None for part in parts)
        and attention.pattern.stride is None
        and attention.pairing in PAIRINGS
        and feed_forward.activation in NUMBERS
    )


class Plan:
    """Where the parameters of all blocks and what they remember lie, as the loops read it.

    tables      None where they cannot read them
    """

    def __init__(self, stack: Stack, blocks: list[Tree]) -> None:
        block = stack.block
        attention, feed_forward = block.attention, block.feed_forward
        self.stack = stack
        self.blocks, self.dicts = blocks, _dicts(blocks)
        self.contents = list(self.listed())  # stay alive, because the addresses of arrays are in the tables
        self.scale = attention.channels**-0.5 if attention.scale is None else attention.scale
        self.sizes = Sizes(
            width=attention.width,
            heads=attention.heads,
            key_heads=attention.key_heads,
            channels=attention.channels,
            hidden=feed_forward.hidden,
            activation=NUMBERS[feed_forward.activation],
            pairing=PAIRINGS.index(attention.pairing),
            rms=int(type(block.norm) is RMSNorm),
        )
        # The loops read where the shapes say they should: shapes are never taken on trust.
        wanted = _shapes(block.specs())
        known = len(blocks) == stack.layers and all(_shapes(params) == wanted for params in blocks)
        self.tables: Any = _tables(blocks, feed_forward) if known else None
        self.size = sum(leaf.nbytes for params in blocks for leaf in flatten(params).values()) if known else 0
        self.turn = Lock()  # what is noted here holds for one token at a time
        self.buffers: list[Array] = []  # keys and values of all blocks, when their places were last looked up

    def listed(self) -> Iterator[Any]:
        """Go through all that stands in the list of blocks and in its dicts, in order."""
        return chain(self.blocks, chain.from_iterable(map(dict.values, self.dicts)), (_NOTHING,))

    def is_about(self, stack: Stack, blocks: list[Tree]) -> bool:
        """Tell whether every parameter still is the one whose place was noted."""
        return stack is self.stack and blocks is self.blocks and all(map(is_, self.listed(), self.contents))

    def fits(self, cache: Cache, lead: tuple[int, ...], rotation: tuple[Array, Array] | None) -> bool:
        """Tell whether one position turns the heads, and the cache holds float32 keys of one sequence, or none yet."""
        if rotation is not None and any(2 * y.size != self.sizes.channels for y in rotation):
            return False
        kept, heads = [block.attention for block in cache.blocks], (*lead, self.sizes.key_heads)
        if len(kept) != self.stack.layers:
            return False
        first, buffers = kept[0], [x for own in kept for x in (own.k, own.v)]
        if self.buffers and all(map(is_, buffers, self.buffers)):
            return first.k.shape[:-2] == heads
        self.buffers = []
        if any(type(own) is not KeyValues or (own.seen, own.window) != (first.seen, first.window) for own in kept):
            return False
        if first.k is None:
            return all(x is None for x in buffers)
        shape = *heads, first.k.shape[-2], self.sizes.channels
        fitting = (type(x) is np.ndarray and x.dtype == _FLOAT and x.shape == shape for x in buffers)
        return all(fitting) and all(x.flags.writeable for x in buffers)

    def reserve(self, cache: Cache, lead: tuple[int, ...]) -> tuple[Any, Any]:
        """Make room for one more token in all blocks; return the tables and the sizes."""
        first = cache.blocks[0].attention
        shape = (*lead, self.sizes.key_heads, 1, self.sizes.channels)
        slot = first.reserve(shape, _FLOAT)
        if not self.buffers or first.k is not self.buffers[0]:  # the others' have changed with it
            self.buffers = []
            for row, block in zip(self.tables.keys, cache.blocks, strict=True):
                kept = block.attention
                kept.reserve(shape, _FLOAT)
                kept.k, kept.v = np.ascontiguousarray(kept.k), np.ascontiguousarray(kept.v)
                row[:] = _address(kept.k), _address(kept.v)
                self.buffers += kept.k, kept.v
        looked_at = first.seen + 1 if first.window is None else min(first.seen + 1, first.window)
        capacity = first.k.shape[-2]
        if not 0 <= slot < looked_at <= capacity:
            raise ShapeError(
                f"the cache has room for {capacity} keys and is said to hold {first.seen}, window {first.window}",
                hint="leave `seen` and `window` to the cache, or start a new one",
            )
        return self.tables, self.sizes._replace(capacity=capacity, slot=slot, looked_at=looked_at)


_plans: WeakKeyDictionary[Cache, Plan] = WeakKeyDictionary()


def plan_of(stack: Stack, blocks: list[Tree], cache: Cache) -> Plan:
    """Return the plan by which a cache is read and written, made anew where some parameter is another."""
    plan = _plans.get(cache)
    if plan is None or not plan.is_about(stack, blocks):
        plan = _plans[cache] = Plan(stack, blocks)
    return plan


def _dicts(blocks: list[Tree]) -> list[dict[str, Any]]:
    """Return all dicts of the blocks."""
    found = [block for block in blocks if isinstance(block, dict)]
    for own in found:  # grows while it is gone through
        found += [part for part in own.values() if isinstance(part, dict)]
    return found


def _shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    return {name: tuple(leaf.shape) for name, leaf in flatten(tree).items()}


def _tables(blocks: list[Tree], feed_forward: FeedForward) -> Any:
    """Gather the addresses of all parameters; None where some array is not laid out as the loops read it."""
    widening = ("up", "gate") if feed_forward.gated else ("up",)
    rows: list[Any] = []
    for params in blocks:
        parts = {**params["attention"], **params["feed_forward"]}
        before = params["attention_norm"], params["feed_forward_norm"]
        norms = [norm.get(name) for norm in before for name in ("gamma", "beta")]
        biases = [parts.get(name, {}).get("b") for name in _VECTORS]
        matrices = [_matrices(parts, names) for names in (("query", "key", "value"), ("output",), widening, ("down",))]
        if None in matrices or not all(x is None or is_array(x, _FLOAT, x.shape) for x in (*norms, *biases)):
            return None
        rows.append([[_address(x) for x in norms], [_address(x) for x in biases], [0, 0], *matrices])
    return Tables(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def _matrices(parts: Tree, names: tuple[str, ...]) -> list[Any] | None:
    found = [described(parts[name]["w"]) for name in names]
    return None if None in found else found


def _address(array: Array | None) -> int:
    return 0 if array is None else array.__array_interface__["data"][0]
