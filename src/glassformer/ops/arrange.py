"""Sums and rearrangements: what layers do between their matrices, norms and attention.

    y = x + h      heads split and merged      one position taken      one vector put before a sequence

None of them has a parameter. Their gradients are the same moves backward: a sum hands dy to both of its terms, and what
was moved moves back. They are ops so that the list of op calls is the whole program: nothing is computed between them.
"""

from typing import NamedTuple

from ..arrays import Array, namespace, unbroadcast
from ..dispatch import dispatched, recorded
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


@recorded
def take_first(x: Array, *, length: int) -> tuple[Array, None]:
    """Return the vector at the first of `length` positions, (..., T, D) to (..., D)."""
    namespace(x)  # refuse lists
    return x[..., 0, :], None


@recorded
def take_first_backward(dy: Array, saved: None, *, length: int) -> Array:
    """Gradient of `take_first`: dy at the first position, and zeros at all others, which were not read."""
    xp = namespace(dy)
    zeros = xp.zeros((*dy.shape[:-1], length - 1, dy.shape[-1]), dtype=dy.dtype)
    return xp.concatenate((dy[..., None, :], zeros), axis=-2)


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
