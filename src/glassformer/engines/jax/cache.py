"""The cache of compiled decoding: buffers of one size, in which the next token is a place and not a shape.

Under `jax.jit` every shape is part of the program. Here the keys of all tokens stand in buffers that are as large at
the first token as at the last; how far they are filled is a number that the program reads. What is not filled yet, and
the padding before short prompts, is masked. A window is a mask as well: all keys are kept.
"""

from typing import NamedTuple

import numpy as np
from jax.lax import dynamic_update_slice_in_dim

from ...arrays import Array, cast, namespace
from ...dispatch import replaces
from ...layers.cache import BlockCache, Cache, KeyValues
from ...ops import Pattern


@replaces(KeyValues.write)
def write(self: KeyValues, start: int, k: Array, v: Array) -> None:
    """Put new keys and values at `start`: arrays of JAX are not written into, but made anew."""
    self.k, self.v = _spliced(self.k, k, start), _spliced(self.v, v, start)


def _spliced(old: Array, new: Array, start: int) -> Array:
    """Return `old` (..., S, C) with `new` from place `start` on."""
    if old is None:
        return new
    stop = start + new.shape[-2]
    return namespace(new).concatenate((old[..., :start, :], new, old[..., stop:, :]), axis=-2)


class FixedKeyValues(KeyValues):
    """Keys and values (B, K, S, C) of one attention layer, the first `seen` of S places filled."""

    def __init__(self, k: Array, v: Array, seen: Array) -> None:
        super().__init__()
        self.k, self.v, self.seen = k, v, seen

    def columns(self, new: int) -> Array:
        """Return all places, filled or not."""
        return np.arange(self.k.shape[-2])

    def allowed(self, pattern: Pattern, new: int) -> Array:
        """Return which places so many new tokens may see under a pattern, none of them a later one, (T, S)."""
        rows, columns = self.seen + np.arange(new), self.columns(new)
        return pattern.tile(rows, columns) & (columns <= rows[:, None])

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Write new keys and values over the next places; return all places."""
        self.k = dynamic_update_slice_in_dim(self.k, cast(k, self.k.dtype), self.seen, axis=-2)
        self.v = dynamic_update_slice_in_dim(self.v, cast(v, self.v.dtype), self.seen, axis=-2)
        self.seen = self.seen + k.shape[-2]
        return self.k, self.v


class State(NamedTuple):
    """What was read of B sequences that are padded on the left, so that their next tokens share a place.

    keys, values   (B, K, S, C) of each block
    memory         keys and values (B, K, M, C) that each block has of a source; None: there is no source
    memory_mask    (B, M) True for the real tokens of the source
    padding        (B,) how many places stand before each sequence
    seen           () how many places are filled
    """

    keys: list[Array]
    values: list[Array]
    memory: list[tuple[Array, Array]] | None
    memory_mask: Array | None
    padding: Array
    seen: Array

    @property
    def sizes(self) -> tuple[int, int]:
        """How many sequences of how many places there are."""
        return len(self.padding), self.keys[0].shape[-2]


class FixedCache(Cache):
    """A state as the layers read and write it."""

    def __init__(self, state: State) -> None:
        super().__init__(0)
        for number, (k, v) in enumerate(zip(state.keys, state.values, strict=True)):
            block = BlockCache()
            block.attention = FixedKeyValues(k, v, state.seen)
            block.memory = None if state.memory is None else state.memory[number]
            self.blocks.append(block)
        self.memory_mask, self.padding = state.memory_mask, state.padding
        self.capacity = state.sizes[1]
        self.mask: Array = np.arange(self.capacity) >= self.padding[:, None]

    def rows(self, new: int) -> Array:
        """Return the places of so many new tokens."""
        return self.length + np.arange(new)

    def positions(self, new: int, context: int) -> Array:
        """Return where so many new tokens stand in their own sequences, (B, T); padding stands at 0."""
        return namespace(self.padding).clip(self.rows(new) - self.padding[:, None], 0, context - 1)

    def key_mask(self, new: int) -> Array:
        """Return which places are not padding, (B, 1, S)."""
        return self.mask[:, None, :]

    def note_padding(self, mask: Array | None, shape: tuple[int, ...]) -> None:
        """Do nothing: the padding is known."""
