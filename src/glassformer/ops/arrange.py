"""Sums and rearrangements: what layers do between their matrices, norms and attention.

    y = x + h      heads split and merged      one position taken      one vector put before a sequence

None of them has a parameter. Their gradients are the same moves backward: a sum hands dy to both of its terms, and what
was moved moves back. Backward passes add by `add`, too: what was read twice has the sum of two gradients. What follows
from lengths and masks alone has no gradient.

They are ops so that the list of op calls is the whole program: nothing is computed between them.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, namespace, unbroadcast
from ..core.dispatch import dispatched, recorded
from .linear import sum_rows


class AddSaved(NamedTuple):
    x: Array
    h: Array


@recorded
def add(x: Array, h: Array) -> tuple[Array, AddSaved | None]:
    """Return y = x + h; either term may be broadcast. The record is None where both have the shape of y."""
    namespace(x), namespace(h)  # refuse lists
    return x + h, None if x.shape == h.shape else AddSaved(x, h)


@recorded
def add_backward(dy: Array, saved: AddSaved | None) -> tuple[Array, Array]:
    """Gradient of `add`: dx = dh = dy, summed over the axes along which a term was broadcast."""
    if saved is None:
        return dy, dy
    dx, dh = (unbroadcast(dy, tuple(term.shape)) for term in saved)
    return dx, dh


@recorded
def sum_to(dy: Array, ids: Array) -> Array:
    """Sum vectors dy (..., D) to those of ids (...), which were broadcast: one for every id."""
    return unbroadcast(dy, (*ids.shape, dy.shape[-1]))


@recorded
def scale(x: Array, *, factor: float) -> tuple[Array, None]:
    """Return y = x · factor."""
    namespace(x)  # refuse lists
    return x * factor, None


@recorded
def scale_backward(dy: Array, saved: None, *, factor: float) -> Array:
    """Gradient of `scale`: dx = dy · factor."""
    return dy * factor


class CopySaved(NamedTuple):
    x: Array


@recorded
def copy(x: Array) -> tuple[Array, CopySaved]:
    """Return y = x as another array, so that both can be changed apart and have gradients of their own."""
    namespace(x)  # refuse lists
    return +x, CopySaved(x)


@recorded
def copy_backward(dy: Array, saved: CopySaved) -> Array:
    """Gradient of `copy`: dx = dy."""
    return +dy


@recorded
def split_heads(x: Array, *, heads: int) -> tuple[Array, None]:
    """View (..., T, H·C) as (..., H, T, C): head h has channels h·C to (h + 1)·C, and becomes one more batch axis."""
    return _split(x, heads), None


@recorded
def split_heads_backward(dy: Array, saved: None, *, heads: int) -> Array:
    """Gradient of `split_heads`: the heads side by side again, (..., H, T, C) to (..., T, H·C)."""
    return _merge(dy)


@recorded
def merge_heads(x: Array, *, heads: int) -> tuple[Array, None]:
    """Put the heads side by side: (..., H, T, C) to (..., T, H·C)."""
    return _merge(x), None


@recorded
def merge_heads_backward(dy: Array, saved: None, *, heads: int) -> Array:
    """Gradient of `merge_heads`: split again, (..., T, H·C) to (..., H, T, C)."""
    return _split(dy, heads)


def _split(x: Array, heads: int) -> Array:
    xp = namespace(x)
    return xp.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -3, -2)


def _merge(x: Array) -> Array:
    x = namespace(x).swapaxes(x, -3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


class TakeFirstSaved(NamedTuple):
    first: Array  # (T, 1): True at the position that was read


@recorded
def take_first(x: Array) -> tuple[Array, TakeFirstSaved]:
    """Return the vector at the first position, (..., T, D) to (..., D)."""
    positions = namespace(x).arange(x.shape[-2])
    return x[..., 0, :], TakeFirstSaved(positions[:, None] == 0)


@recorded
def take_first_backward(dy: Array, saved: TakeFirstSaved) -> Array:
    """Gradient of `take_first`: dy at the first position, and zeros at all others, which were not read."""
    xp = namespace(dy)
    return xp.where(saved.first, dy[..., None, :], xp.zeros((), dtype=dy.dtype))


class PrependSaved(NamedTuple):
    first: Array  # (D,)


@dispatched
def prepend(first: Array, x: Array) -> tuple[Array, PrependSaved]:
    """Put one vector (D,) before every sequence x (..., T, D): (..., 1 + T, D)."""
    xp = namespace(first)
    before = xp.broadcast_to(first, (*x.shape[:-2], 1, x.shape[-1]))
    return xp.concatenate((before, x), axis=-2), PrependSaved(first)


@dispatched
def prepend_backward(dy: Array, saved: PrependSaved) -> tuple[Array, Array]:
    """Gradient of `prepend`: dfirst is summed over all sequences, since it stood before each; dx is the rest."""
    return sum_rows(dy[..., 0, :]), dy[..., 1:, :]


# --- what has no gradient --------------------------------------------------------------------------------------------


@recorded
def take_last(x: Array) -> Array:
    """Return the vector at the last position, (..., T, D) to (..., 1, D)."""
    return x[..., -1:, :]


@recorded
def join_ring(ring: Array, new: Array, *, seen: int, window: int) -> Array:
    """Put the keys of new tokens (..., T, C) behind the last `window` of those seen, which slot p mod window holds."""
    slots = np.arange(max(seen - window, 0), seen) % window
    return namespace(new).concatenate((ring[..., slots, :], new), axis=-2)


@recorded
def prepend_true(mask: Array) -> Array:
    """Put True before every row of a mask (..., T), as `prepend` puts a vector before its sequence: (..., 1 + T)."""
    xp = namespace(mask)
    return xp.concatenate((xp.ones((*mask.shape[:-1], 1), dtype=bool), mask), axis=-1)


@recorded
def zeros_like(ids: Array) -> Array:
    """Return as many zeros as there are ids."""
    return namespace(ids).zeros_like(ids)


@recorded
def astype(x: Array, like: Array, *, dtype: Any) -> Array:
    """Return numbers x, such as a table of angles, in another type, as an array of the library of `like`."""
    return namespace(like).asarray(x, dtype=dtype)
