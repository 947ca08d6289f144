"""From logits to the next token without leaving the device: `sampling.choose` as a part of a JAX program.

It takes the same uniform numbers, from the host's generators, and the same steps in the same order, so that a seed
gives the same answers under JAX as elsewhere. Only where the sums of float32 here and of float64 there fall on
different sides of such a number, by the last digits, do they part. Penalties are left to the host.
"""

from typing import NamedTuple

import jax
import numpy as np

from ...arrays import Array, namespace, widen
from ...dispatch import replaces
from ...generation.sampling import Sampling, choose
from ...generation.writer import Sequences

LIKELIEST, DRAWN, FILTERED = WAYS = ("likeliest", "drawn", "filtered")
"""How the next token is chosen: the likeliest; drawn from all; drawn from those that top-k, top-p and min-p leave."""

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), 1e30
"""Numbers beyond mean the same as these, and would be 0 or infinite in float32, or one over them would."""


class Drawing(NamedTuple):
    """Settings of `Sampling` as numbers that a program reads, so that none of them is a reason to compile another."""

    temperature: Array
    top_k: Array
    top_p: Array
    min_p: Array


def drawing_of(sampling: Sampling, vocab: int) -> tuple[str, Drawing]:
    """Return the way and the numbers of settings without penalties."""
    top_k = vocab if sampling.top_k is None else min(sampling.top_k, vocab)
    # Sums of all probabilities may exceed 1 by rounding: a limit that none of them reaches leaves all in.
    top_p = 2.0 if sampling.top_p == 1 else max(sampling.top_p, _SMALLEST)
    # The smallest temperature already leaves nothing but the largest logits, the largest makes all of them equal.
    temperature = min(max(sampling.temperature, _SMALLEST), _LARGEST)
    numbers = (temperature, top_k, top_p, sampling.min_p)
    filters = top_k < vocab or sampling.top_p < 1 or sampling.min_p > 0
    way = LIKELIEST if sampling.temperature == 0 else FILTERED if filters else DRAWN
    return way, Drawing(*(np.float64(number) for number in numbers))


@replaces(choose, Sequences._steps)
def chosen(logits: Array, uniforms: Array, drawing: Drawing, way: str) -> Array:
    """Return the next token of each sequence, (B,) int32, for logits (B, V) and numbers (B,) from [0, 1)."""
    xp = namespace(logits)
    if way == LIKELIEST:
        return xp.argmax(logits, axis=-1).astype(np.int32)
    x = widen(logits)
    p = xp.exp((x - xp.max(x, axis=-1, keepdims=True)) / drawing.temperature)
    if way == FILTERED:
        p = xp.where(_largest(p, xp.ones_like(p), drawing.top_k), p, 0)
        p = p / xp.sum(p, axis=-1, keepdims=True)
        p = xp.where(_largest(p, p, drawing.top_p), p, 0)
        p = xp.where(p >= drawing.min_p * xp.max(p, axis=-1, keepdims=True), p, 0)
    cumulative = xp.cumsum(p, axis=-1)
    # Sums that are computed in parallel may grow by rounding even where p is zero.
    beyond = (p > 0) & (cumulative > uniforms[:, None] * cumulative[:, -1:])
    last = p.shape[-1] - 1 - xp.argmax(p[:, ::-1] > 0, axis=-1)
    return xp.where(xp.any(beyond, axis=-1), xp.argmax(beyond, axis=-1), last).astype(np.int32)


def _largest(p: Array, weights: Array, limit: Array) -> Array:
    """Mark the largest entries of each row of p (B, V): those before which less than `limit` weighs, equals by place.

    With weights of 1 these are the `limit` largest, with weights p the fewest that sum to `limit`. The smallest of them
    is found by bisection: numbers from 0 on are ordered as the integers that share their bits, and V log V comparisons
    of a sort would take far longer.
    """
    xp = namespace(p)
    integers = {4: np.int32, 8: np.int64}[p.dtype.itemsize]

    def heavier_than(bits: Array) -> Array:
        bound = jax.lax.bitcast_convert_type(bits, p.dtype)
        return xp.sum(xp.where(p > bound, weights, 0), axis=-1, keepdims=True)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = high - (high - low) // 2
        fits = heavier_than(middle) < limit
        return xp.where(fits, low, middle), xp.where(fits, middle, high)

    # Nothing weighs more than the largest entry; before 0 stands −1, which is never looked at.
    high = jax.lax.bitcast_convert_type(xp.max(p, axis=-1, keepdims=True), integers)
    _, bits = jax.lax.fori_loop(0, 8 * p.dtype.itemsize, halve, (xp.full_like(high, -1), high))
    equal = p == jax.lax.bitcast_convert_type(bits, p.dtype)
    earlier = xp.cumsum(xp.where(equal, weights, 0), axis=-1) - weights
    above = p > jax.lax.bitcast_convert_type(bits, p.dtype)
    return above | (equal & (heavier_than(bits) + earlier < limit))
