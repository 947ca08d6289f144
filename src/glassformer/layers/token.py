"""Reading one more token of one sequence: all blocks in one call of a compiled kernel.

Generation takes this way where it can, which is most of the time: a decoder with norms before its sublayers, float32 or
quantized matrices that lie as (outputs, inputs), and positions that are learned or turned. `Block.read` says the same
in the layers' own words, and reads everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array, Tree
from ..engine import kernel
from ..tree import flatten
from .cache import Cache
from .feed_forward import FeedForward
from .norm import RMSNorm

if TYPE_CHECKING:
    from .stack import Stack

_VECTORS = ("query", "key", "value", "output", "up", "gate", "down")
_NOTHING: Array = np.zeros(0, dtype=np.float32)


def read_token(
    stack: Stack, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None
) -> Array | None:
    """Return what all blocks make of the vector x (..., 1, D) of one token; None where there is no kernel for it."""
    if type(x) is not np.ndarray or x.dtype != np.float32 or x.size != x.shape[-1]:
        return None
    run = kernel("read_token", x)
    if run is None:
        return None
    if cache.plan is None or cache.plan.blocks is not params["blocks"]:
        cache.plan = Plan(stack, params["blocks"])
    lead = x.shape[:-2]
    if cache.plan.tables is None or not cache.plan.fits(cache, lead, rotation):
        return None
    cos, sin = (_NOTHING, _NOTHING) if rotation is None else (np.ascontiguousarray(y).reshape(-1) for y in rotation)
    y = x.reshape(1, -1).copy()
    run(y, *cache.plan.reserve(cache, lead), cos, sin, stack.block.norm.eps, cache.plan.scale)
    for kept in cache.blocks:
        kept.attention.seen += 1
    return y.reshape(x.shape)


class Plan:
    """Where the parameters of all blocks and what they remember lie, as the kernel reads it.

    tables      None where it cannot read them
    """

    def __init__(self, stack: Stack, blocks: list[Tree]) -> None:
        from ..kernels.decode import ACTIVATIONS, PAIRINGS, Sizes

        block = stack.block
        attention, feed_forward = block.attention, block.feed_forward
        self.blocks = blocks
        self.arrays = list(flatten(blocks).values())  # stay alive, because their addresses are in the tables
        self.scale = attention.channels**-0.5 if attention.scale is None else attention.scale
        self.sizes = Sizes(
            width=attention.width,
            heads=attention.heads,
            key_heads=attention.key_heads,
            channels=attention.channels,
            hidden=feed_forward.hidden,
            activation=ACTIVATIONS.index(feed_forward.activation),
            pairing=PAIRINGS.index(attention.pairing),
            rms=int(isinstance(block.norm, RMSNorm)),
            capacity=0,
            slot=0,
            looked_at=0,
        )
        plain = block.norm_position == "pre" and block.cross_attention is None and attention.pattern.stride is None
        # The kernel reads where the shapes say it should: they are never taken on trust.
        wanted = _shapes(block.specs())
        known = len(blocks) == stack.layers and all(_shapes(params) == wanted for params in blocks)
        self.tables: Any = _tables(blocks, feed_forward) if plain and known else None
        self._buffer: Array = None  # keys of the first block, when their places were last looked up

    def fits(self, cache: Cache, lead: tuple[int, ...], rotation: tuple[Array, Array] | None) -> bool:
        """Tell whether one position turns the heads, and the cache holds float32 keys of one sequence, or none yet."""
        if rotation is not None and any(2 * y.size != self.sizes.channels for y in rotation):
            return False
        k = cache.blocks[0].attention.k
        return k is None or (k.dtype == np.float32 and k.shape[:-2] == (*lead, self.sizes.key_heads))

    def reserve(self, cache: Cache, lead: tuple[int, ...]) -> tuple[Any, Any]:
        """Make room for one more token in all blocks; return the tables and the sizes."""
        first = cache.blocks[0].attention
        shape = (*lead, self.sizes.key_heads, 1, self.sizes.channels)
        slot = first.reserve(shape, np.float32)
        if first.k is not self._buffer:  # the others' have changed with it
            for row, block in zip(self.tables.keys, cache.blocks, strict=True):
                kept = block.attention
                kept.reserve(shape, np.float32)
                kept.k, kept.v = np.ascontiguousarray(kept.k), np.ascontiguousarray(kept.v)
                row[:] = _address(kept.k), _address(kept.v)
            self._buffer = first.k
        looked_at = first.seen + 1 if first.window is None else min(first.seen + 1, first.window)
        return self.tables, self.sizes._replace(capacity=first.k.shape[-2], slot=slot, looked_at=looked_at)


def _shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    return {name: tuple(leaf.shape) for name, leaf in flatten(tree).items()}


def _tables(blocks: list[Tree], feed_forward: FeedForward) -> Any:
    """Gather the addresses of all parameters; None where some array is not laid out as the kernel reads it."""
    from ..kernels.decode import Tables

    widening = ("up", "gate") if feed_forward.gated else ("up",)
    rows: list[Any] = []
    for params in blocks:
        parts = {**params["attention"], **params["feed_forward"]}
        before = params["attention_norm"], params["feed_forward_norm"]
        norms = [norm.get(kind) for norm in before for kind in ("gamma", "beta")]
        biases = [parts.get(name, {}).get("b") for name in _VECTORS]
        matrices = [_matrices(parts, names) for names in (("query", "key", "value"), ("output",), widening, ("down",))]
        if None in matrices or not all(_is_plain(vector) for vector in (*norms, *biases)):
            return None
        rows.append([[_address(x) for x in norms], [_address(x) for x in biases], [0, 0], *matrices])
    return Tables(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def _matrices(parts: Tree, names: tuple[str, ...]) -> list[Any] | None:
    from ..kernels.matvec import described

    found = [described(parts[name]["w"]) for name in names]
    return None if None in found else found


def _is_plain(vector: Array | None) -> bool:
    return vector is None or (type(vector) is np.ndarray and vector.dtype == np.float32 and vector.flags.c_contiguous)


def _address(array: Array | None) -> int:
    return 0 if array is None else array.__array_interface__["data"][0]
