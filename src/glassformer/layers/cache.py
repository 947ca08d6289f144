"""The memory of decoding: the keys and values of tokens already read, so that each is computed once.

    cache = model.new_cache()
    logits = model.read(params, prompt, cache)        # reads the prompt
    logits = model.read(params, next_token, cache)    # reads one more token, which attends to all of it

Keys and values suffice. In a causal model no token sees a later one, so nothing that was computed for a token changes
when more are read; and of all that was computed for it, later tokens look at its keys and its values only, never at its
query or at what it became. A new token costs one row of every product, instead of all rows once more.

Memory grows with what is read: 2 · L · K · C numbers a token. Under a sliding window only the last `window` keys are
kept, in a ring: position p stands in slot p mod window, over position p − window, which no query sees any more. A ring
is out of order once it has gone round, which does no harm: softmax adds its keys up in any order, rotations are in the
keys already, and masks and biases are asked for by `columns`, the position in each slot.
"""

from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.dispatch import dispatched
from ..core.errors import ShapeError

FIRST_CAPACITY = 64


class KeyValues:
    """Keys and values (..., K, S, C) of one attention layer, in a buffer that doubles when it is full.

    Doubling copies each key about once in all, however many come one by one; growing by one would copy all at every
    token, and cost the square of the length.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.k: Array = None  # nothing read yet
        self.v: Array = None
        self.seen = 0  # tokens read so far

    @property
    def stored(self) -> int:
        """The number of keys that are kept."""
        return self.seen if self.window is None else min(self.seen, self.window)

    def columns(self, new: int) -> Array:
        """Return the positions of the keys that `append` will return for `new` tokens."""
        total = self.seen + new
        if self.window is not None and total > self.window and new == 1:
            return ops.ring_positions(total, window=self.window)
        first = 0 if self.window is None or total <= self.window else self.seen - self.stored
        return ops.next_positions(first, total - first)

    def allowed(self, pattern: ops.Pattern, new: int) -> Array | None:
        """Return which of these keys `new` tokens may see under a pattern, (T, S); None: all of them."""
        if pattern.is_full or (new == 1 and pattern.is_span):
            return None  # one token sees all that came before it, and no more than its window is kept
        total = self.seen + new
        if self.window is None or total <= self.window:
            return ops.pattern_mask(new, total, pattern=pattern)
        return ops.pattern_tile(ops.next_positions(self.seen, new), self.columns(new), pattern=pattern)

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Take in the keys and values of new tokens; return all that they may attend to."""
        new = k.shape[-2]
        total = self.seen + new
        if self.window is None or total <= self.window:
            self.write(self.seen, k, v)
            self.seen = total
            return self.k[..., :total, :], self.v[..., :total, :]
        if new == 1:
            # The slot of the key that has just left the window.
            self.write(self.seen % self.window, k, v)
            self.seen = total
            return self.k, self.v
        return self._wrap(k, v, total)

    def reserve(self, shape: tuple[int, ...], dtype: Any) -> int:
        """Make room for one more token, whose keys have the shape (..., K, 1, C); return its slot in the buffer.

        The caller counts it as `seen`.
        """
        self._check_fit(shape)
        slot = self.seen if self.window is None else self.seen % self.window
        if self.k is None or slot >= self.k.shape[-2]:
            self._grow(slot + 1, shape, dtype)
        return slot

    def _wrap(self, k: Array, v: Array, total: int) -> tuple[Array, Array]:
        """Return the kept keys in order with the new ones behind them, and keep the last `window` in the ring.

        Several new tokens have windows that begin at different places: the first of them may still see keys that the
        last one's arrival drives out. So all are returned, (..., K, stored + T, C), before the oldest are given up.
        """
        assert self.window is not None
        self._check_fit(k.shape)
        if self.k is not None and self.seen:
            k, v = (ops.join_ring(*pair, seen=self.seen, window=self.window) for pair in ((self.k, k), (self.v, v)))
        # Of the last `window` keys, which one belongs into slot 0, slot 1, …
        slots = np.argsort(np.arange(total - self.window, total) % self.window)
        self.k, self.v = k[..., -self.window :, :][..., slots, :], v[..., -self.window :, :][..., slots, :]
        self.seen = total
        return k, v

    @dispatched(by="k")
    def write(self, start: int, k: Array, v: Array) -> None:
        """Put new keys and values at `start`, in a larger buffer if need be."""
        stop = start + k.shape[-2]
        self._check_fit(k.shape)
        if self.k is None or stop > self.k.shape[-2]:
            self._grow(stop, k.shape, k.dtype)
        elif not isinstance(self.k, np.ndarray):  # a ring of arrays of another library, which cannot be written into
            self.k, self.v = np.array(self.k), np.array(self.v)
        self.k[..., start:stop, :] = k
        self.v[..., start:stop, :] = v

    def _check_fit(self, shape: tuple[int, ...]) -> None:
        """Refuse keys (..., K, T, C) of other sequences than those that are remembered."""
        if self.k is None:
            return
        held, new = ((*size[:-2], size[-1]) for size in (self.k.shape, shape))
        if held != new:
            raise ShapeError(
                f"the cache holds {held} sequences, heads and channels, the new tokens have {new}",
                hint="start a new cache for another batch",
            )

    def _grow(self, needed: int, shape: tuple[int, ...], dtype: Any) -> None:
        """Move to buffers with room for `needed` tokens, or for twice as many as before; a ring stops at its window."""
        capacity = FIRST_CAPACITY if self.k is None else 2 * self.k.shape[-2]
        capacity = max(needed, capacity if self.window is None else min(capacity, self.window))
        for name in ("k", "v"):
            old = getattr(self, name)
            buffer = np.empty((*shape[:-2], capacity, shape[-1]), dtype=dtype)
            if old is not None:
                buffer[..., : self.seen, :] = old[..., : self.seen, :]
            setattr(self, name, buffer)

    def select(self, rows: Array) -> None:
        """Keep these sequences of the batch, in this order; one may be kept several times."""
        if self.k is not None:
            self.k, self.v = self.k[rows], self.v[rows]


class BlockCache:
    """The memory of one block: the tokens it read, and the memory it looks at."""

    def __init__(self, window: int | None = None) -> None:
        self.attention = KeyValues(window)
        self.memory: tuple[Array, Array] | None = None  # keys and values (..., K, S, C) of the source


class Cache:
    """The memory of all blocks of a stack, and which tokens are padding.

    All blocks have read the same tokens, so any of them, here the first, tells how many and where their keys stand.
    """

    capacity: int | None = None  # how many tokens there is room for; None: as many as come

    def __init__(self, layers: int, window: int | None = None) -> None:
        self.blocks = [BlockCache(window) for _ in range(layers)]
        self.mask: Array | None = None  # (..., S): True for real tokens; None: all are
        self.memory_mask: Array | None = None  # (..., S): True for the real tokens of the source

    @property
    def length(self) -> int:
        """The number of tokens read."""
        return self.blocks[0].attention.seen

    @property
    def nbytes(self) -> int:
        """Memory of all keys and values, room to grow included."""
        arrays: list[Any] = [a for block in self.blocks for a in (block.attention.k, block.attention.v)]
        arrays += [a for block in self.blocks for a in block.memory or ()]
        return sum(a.nbytes for a in arrays if a is not None)

    def rows(self, new: int) -> Array:
        """Return the places of `new` tokens."""
        return ops.next_positions(self.length, new)

    def columns(self, new: int) -> Array:
        """Return the places of all keys that they may attend to, in the order of the cache."""
        return self.blocks[0].attention.columns(new)

    def note_padding(self, mask: Array | None, shape: tuple[int, ...]) -> None:
        """Note which of the new tokens, of shape (..., T), are real; call it before they are read."""
        if mask is None and self.mask is None:
            return
        before = np.ones((*shape[:-1], self.length), dtype=bool) if self.mask is None else self.mask
        after = np.ones(shape, dtype=bool) if mask is None else np.asarray(mask)
        self.mask = np.concatenate((before, after), axis=-1)

    def key_mask(self, new: int) -> Array | None:
        """Return which keys are real, (..., 1, S) in the order of the cache; None: all are."""
        return None if self.mask is None else ops.mask_of_keys(self.mask, self.columns(new))

    def select(self, rows: Array) -> None:
        """Keep these sequences of the batch, in this order; one may be kept several times.

        Beam search needs it: where two of the best continuations share a beginning, that sequence goes on twice.
        """
        for block in self.blocks:
            block.attention.select(rows)
            if block.memory is not None:
                block.memory = (block.memory[0][rows], block.memory[1][rows])
        self.mask = None if self.mask is None else self.mask[rows]
        self.memory_mask = None if self.memory_mask is None else self.memory_mask[rows]
