"""Who may attend to whom: boolean masks, True where a query (row) may look at a key (column).

The mask is what makes a decoder of a Transformer. A causal model reads a text of T tokens once and is asked T questions
at once, at each place which token comes next; the answer stands one place further in the same input, so a query must
not see beyond itself. An encoder has no such question and sees everything.

Masks also save work. A window costs T · window instead of T², and a stack still sees further than its window, because
what a key holds was gathered from keys before it: L layers reach about L · window back. A stride adds far keys, so that
two layers reach any (Child et al. 2019).
"""

import functools
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array, namespace
from ..core.dispatch import recorded
from ..core.errors import ConfigError, LengthError


@dataclass(frozen=True)
class Pattern:
    """A rule for masks that follows from positions alone, so that any tile can be made without the whole.

    causal    a query sees itself and what came before
    prefix    … and, besides, the first `prefix` keys: a given text need not be predicted (Raffel et al. 2020)
    window    a query sees keys less than `window` positions away (with causal: the last `window`, itself included)
    stride    a query sees keys less than `stride` away and every stride-th beyond: O(T √T) entries if stride is √T

    What narrows is joined by "and": with several of them a key must be allowed by each.
    """

    causal: bool = False
    prefix: int = 0
    window: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        for name in ("window", "stride"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"{name} is {size}", hint=f"use a {name} of at least 1, or None for none")
        if self.prefix < 0:
            raise ConfigError(f"prefix is {self.prefix}", hint="use a prefix of at least 0")

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return not self.causal and self.window is None and self.stride is None

    @property
    def is_span(self) -> bool:
        """Whether each query sees a run of keys without gaps, the one that `spans` tells."""
        return self.stride is None

    def tile(self, rows: Array, columns: Array) -> Array:
        """Return the mask of the query positions `rows` (T,) and the key positions `columns` (S,): (T, S)."""
        distance = rows[:, None] - columns  # (T, S): positive for keys that came before the query
        allowed = namespace(distance).ones(distance.shape, dtype=bool)
        if self.window is not None:
            allowed &= abs(distance) < self.window
        if self.stride is not None:
            allowed &= (abs(distance) < self.stride) | (distance % self.stride == 0)
        if self.causal:
            allowed &= (distance >= 0) | (columns < self.prefix)
        return allowed

    def reaches(self, rows: range, columns: range) -> bool:
        """Return whether some query of a run of positions may see some key of another; False lets a tile be skipped.

        True may be wrong, False never: a stride is not looked at, for it has keys in nearly every tile.
        """
        # The least distance between the runs, 0 where they overlap.
        nearest = max(0, columns.start - (rows.stop - 1), rows.start - (columns.stop - 1))
        if self.window is not None and nearest >= self.window:
            return False
        # The last query sees the most: a causal tile is empty if even that one comes before the first key.
        return not self.causal or columns.start < max(rows.stop, self.prefix)

    def spans(self, rows: range, keys: int) -> tuple[Array, Array]:
        """Return for each query position the first of `keys` keys that it may see and the one after the last.

        Neither ever moves back from one query to the next.
        """
        position = np.asarray(rows)
        first, last = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), keys)
        if self.window is not None:
            first = np.maximum(first, position - self.window + 1)
            last = np.minimum(last, position + self.window)
        if self.causal:
            last = np.minimum(last, np.maximum(position + 1, self.prefix))
        return np.minimum(first, last), last

    def dense(self, queries: int, keys: int | None = None) -> Array:
        """Return the whole mask (T, S); with fewer queries than keys, the queries are the last ones."""
        keys = queries if keys is None else keys
        self.check_lengths(queries, keys)
        return _dense(self, queries, keys)

    def check_lengths(self, queries: int, keys: int) -> None:
        """Refuse more queries than keys where their places matter."""
        if queries > keys and not self.is_full:
            raise LengthError(
                f"there are {queries} queries but only {keys} keys", hint="the queries are the last of the keys"
            )


FULL = Pattern()
CAUSAL = Pattern(causal=True)


@functools.lru_cache(maxsize=64)
def _dense(pattern: Pattern, queries: int, keys: int) -> Array:
    mask = pattern.tile(np.arange(keys - queries, keys), np.arange(keys))
    mask.flags.writeable = False  # it is shared by everyone who asks
    return mask


@recorded
def pattern_mask(queries: int, keys: int, *, pattern: Pattern) -> Array:
    """Return the mask (T, S) of a pattern for the last of some keys as queries."""
    return pattern.dense(queries, keys)


@recorded
def pattern_tile(rows: Array, columns: Array, *, pattern: Pattern) -> Array:
    """Return the mask (T, S) of a pattern for queries at `rows` (T,) and keys at `columns` (S,)."""
    return pattern.tile(rows, columns)


@recorded
def both_masks(mask: Array, other: Array) -> Array:
    """Allow what two masks allow."""
    return mask & other


@recorded
def mask_of_keys(mask: Array, columns: Array) -> Array:
    """Return for keys at `columns` (S,) what a mask of all positions (..., P) says, for all queries: (..., 1, S)."""
    return mask[..., None, columns]


def causal_mask(queries: int, keys: int | None = None) -> Array:
    """Return the look-ahead mask (T, S): every query sees itself and what came before it."""
    return CAUSAL.dense(queries, keys)


def padding_mask(lengths: Array, size: int) -> Array:
    """Mark the real tokens of right-padded sequences: True for the first `length` of `size` places, (..., S).

    A batch is one array, so short sequences are filled up; no query may attend to what fills them.
    """
    xp = namespace(lengths)
    return xp.arange(size) < lengths[..., None]
