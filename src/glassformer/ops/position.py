"""Positions of tokens: sinusoids, rotations and biases that depend on distance.

Attention by itself sees a set: it gives the same result for any order of the keys. Order must be told, either with the
token (sinusoids; learned positions are an `embedding` of the position numbers), by turning queries and keys (rotary),
or on the scores (ALiBi, relative biases). The last two tell distance rather than place, and so suit a text that may
begin anywhere; they also act on the scores alone, and leave what the values carry untouched.
"""

import math
from typing import NamedTuple

import numpy as np

from ..config import RotaryScaling
from ..core.arrays import Array, check_ids, namespace
from ..core.dispatch import dispatched, recorded
from ..core.errors import ConfigError, ShapeError
from .embedding import scatter_add


@recorded
def positions(x: Array, *, axis: int) -> Array:
    """Return where the entries along an axis of x stand: 0, 1, …, as many as there are."""
    return np.arange(x.shape[axis])


@recorded
def next_positions(seen: int, new: int) -> Array:
    """Return where `new` tokens stand behind those seen: seen, seen + 1, …"""
    return seen + np.arange(new)


@recorded
def ring_positions(seen: int, *, window: int) -> Array:
    """Return the position in each slot of a ring after `seen` tokens: the latest p with p mod window = slot."""
    return seen - 1 - (seen - 1 - np.arange(window)) % window


@recorded
def unpadded_positions(ids: Array, *, padding: int) -> Array:
    """Return where tokens (..., T) stand, padding at 0, the others at 1, 2, … wherever it is."""
    xp = namespace(ids)
    real = xp.asarray(ids != padding, dtype=np.int32)
    return xp.cumsum(real, axis=-1, dtype=np.int32) * real


@recorded
def sinusoidal(positions: Array, width: int, *, base: float = 10000.0) -> Array:
    """Return the encoding of the original Transformer for integer positions (...), shape (..., width).

        PE(p, 2i) = sin(p / base^(2i/width))      PE(p, 2i+1) = cos(p / base^(2i/width))

    Each pair of features is a hand of a clock, the first turning fast and each next one slower: together they tell the
    position as digits tell a number, and a shift by k turns every hand by a fixed angle. So one matrix, the same for
    all p, leads from PE(p) to PE(p + k), and a linear layer can look k places back (Vaswani et al. 2017). An odd width
    ends with a sine.
    """
    positions = np.asarray(positions, dtype=np.float64)
    feature = np.arange(width)
    angle = positions[..., None] / base ** ((feature // 2 * 2) / width)  # (..., width)
    return np.where(feature % 2 == 0, np.sin(angle), np.cos(angle))


@recorded
def rotary_angles(
    positions: Array,
    channels: int,
    *,
    base: float = 10000.0,
    scaling: RotaryScaling | None = None,
    turning: int | None = None,
) -> tuple[Array, Array]:
    """Return the cosines and sines, each (..., channels/2), that `rotary` turns pairs of channels by.

        angle(p, i) = p · base^(−2i/channels)

    The first pair turns by one radian at each step, the last takes about 2π · base steps for one turn. A `scaling` lets
    a model read further than it was trained to: fast pairs have been through all angles long since and stay as they
    are, but slow ones would enter angles they have never seen, so they are slowed down by `factor`. If only `turning`
    of the channels turn, they do so as if a head had no others: pairs after the first turning/2 keep the angle 0.
    """
    turning = channels if turning is None else turning
    if channels % 2 or turning % 2 or turning > channels:
        fact = f"rotary positions turn pairs of channels, but a head has {channels}, of which {turning} turn"
        raise ConfigError(fact, hint="make both even")
    frequency = base ** (-np.arange(0, turning, 2) / turning)
    if scaling is not None:
        # How often a pair goes round in the context of training; blend is 1 for fast pairs, 0 for slow ones.
        turns = scaling.original_context * frequency / (2 * math.pi)
        blend = (turns - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
        blend = np.clip(blend, 0.0, 1.0)
        frequency = frequency * (blend + (1 - blend) / scaling.factor)
    frequency = np.pad(frequency, (0, (channels - turning) // 2))
    angle = np.asarray(positions, dtype=np.float64)[..., None] * frequency
    return np.cos(angle), np.sin(angle)


class RotarySaved(NamedTuple):
    cos: Array  # (..., T, C/2)
    sin: Array  # (..., T, C/2)


@dispatched
def rotary(x: Array, cos: Array, sin: Array, *, pairing: str = "halves") -> tuple[Array, RotarySaved]:
    """Turn each pair of channels of x (..., T, C) by its angle, so that q·k depends on distance only.

        a′ = a cos − b sin      b′ = b cos + a sin

    Turning q at place t by t·θ and k at place s by s·θ leaves the angle between them changed by (t − s)·θ, and their
    dot product depends on nothing but lengths and that angle (Su et al. 2021). Values are not turned. A pair (a, b)
    is channels (i, i + C/2) for "halves" (Hugging Face) and (2i, 2i + 1) for "interleaved" (the paper).
    """
    xp = namespace(x)
    if 2 * cos.shape[-1] != x.shape[-1]:
        raise ShapeError(
            f"x has {x.shape[-1]} channels but there are angles for {2 * cos.shape[-1]}",
            hint="compute the angles with rotary_angles(positions, channels)",
        )
    # Only rotations in the type of x: float64 tables must not widen a float32 model.
    cos, sin = (xp.asarray(table, dtype=x.real.dtype) for table in (cos, sin))
    return _rotate(x, cos, sin, pairing), RotarySaved(cos, sin)


@dispatched
def rotary_backward(dy: Array, saved: RotarySaved, *, pairing: str = "halves") -> Array:
    """Gradient of `rotary` for x: a rotation is undone by turning the other way.

    The transpose of a rotation matrix is its inverse, so the gradient is `rotary` with −sin for sin.
    """
    # a′ = a cos − b sin,  b′ = b cos + a sin:  da = da′ cos + db′ sin,  db = db′ cos − da′ sin
    return _rotate(dy, saved.cos, -saved.sin, pairing)


def _rotate(x: Array, cos: Array, sin: Array, pairing: str) -> Array:
    """Turn the pairs (a, b) of x (..., T, C) by angles given as cosines and sines (..., T, C/2)."""
    xp = namespace(x)
    half = x.shape[-1] // 2
    if pairing == "halves":
        a, b = x[..., :half], x[..., half:]
        y = xp.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)
    elif pairing == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        y = xp.stack((a * cos - b * sin, b * cos + a * sin), axis=-1).reshape(x.shape)
    else:
        raise ConfigError(f"there is no rotary pairing {pairing!r}", hint='use "halves" or "interleaved"')
    return y


def alibi_slopes(heads: int) -> Array:
    """Return the slope of every head: 2^(−8/n), 2^(−16/n), … for n heads.

    A steep head looks at its neighbors only, a flat one at everything: the geometric series gives the heads ranges of
    every order of magnitude. For other than powers of two, as published: the slopes of the next lower power, then every
    other one of the next higher.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power + 1, 2) / power)
    return np.concatenate((slopes, between[: heads - power]))


@recorded
def alibi_bias(heads: int, rows: Array, columns: Array) -> Array:
    """Return the ALiBi bias (H, T, S): the further a key is from its query, the lower its score, −slope · |t − s|.

    After softmax that is a factor exp(−slope · distance) on every weight. Nothing is learned and no position is ever
    new, so a model can read texts longer than any it was trained on (Press et al. 2022).
    """
    distance = abs(rows[:, None] - columns)
    return -alibi_slopes(heads)[:, None, None] * distance


@dispatched
def relative_buckets(
    rows: Array, columns: Array, *, bidirectional: bool, buckets: int = 32, max_distance: int = 128
) -> Array:
    """Sort the distances of keys from queries into buckets (T, S), as T5 does (Raffel et al. 2020).

    Near by, one place more or less matters; far off, only how far. So half of the buckets hold one distance each, and
    the rest grow with the logarithm up to `max_distance`, beyond which all distances share the last. If
    `bidirectional`, the upper half of all is for keys after the query, else those share bucket 0.
    """
    after = columns - rows[:, None]
    if bidirectional:
        buckets //= 2
        first = np.where(after > 0, buckets, 0)
        distance = np.abs(after)
    else:
        first = np.zeros_like(after)
        distance = np.maximum(-after, 0)
    exact = buckets // 2
    if max_distance <= exact:
        raise ConfigError(
            f"max_distance is {max_distance}, but {exact} buckets already hold one distance each",
            hint=f"use a max_distance above {exact}, or fewer buckets",
        )
    # The logarithm is taken in float32, like the published models' own, so that borders fall on the same distance.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(max_distance / exact)
    )
    far = exact + (ratio * np.float32(buckets - exact)).astype(np.int64)
    return first + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


class RelativeBiasSaved(NamedTuple):
    table: Array  # (N, H)
    buckets: Array  # (T, S)


@dispatched
def relative_bias(table: Array, buckets: Array) -> tuple[Array, RelativeBiasSaved]:
    """Look up one learned number per bucket and head: table (N, H), buckets (T, S), result (H, T, S)."""
    xp = namespace(table)
    check_ids(buckets, table.shape[0], what="buckets")
    return xp.moveaxis(table[buckets], -1, 0), RelativeBiasSaved(table, buckets)


@dispatched
def relative_bias_backward(dy: Array, saved: RelativeBiasSaved) -> Array:
    """Gradient of `relative_bias` for the table: every pair of positions adds to its bucket."""
    # y[h, t, s] = table[buckets[t, s], h]
    rows = namespace(dy).moveaxis(dy, 0, -1)
    return scatter_add(rows, saved.buckets, shape=tuple(saved.table.shape))
