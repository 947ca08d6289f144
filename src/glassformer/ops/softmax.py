"""Softmax and log-softmax along the last axis, with masks."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import Array, cast, check_mask, namespace, widen
from ..engine import accelerated


@accelerated
def softmax(x: Array, *, mask: Array | None = None) -> tuple[Array, Array]:
    """Turn scores into weights that are positive and sum to one along the last axis.

        y = exp(x − max x) / Σ exp(x − max x)

    Where `mask` is False, or x is −inf, the weight is zero; a row with nothing left is all zeros.
    """
    e, total = _exponentials(x, mask)
    y = cast(e / namespace(x).where(total == 0, 1, total), x.dtype)
    return y, y


@accelerated
def softmax_backward(dy: Array, y: Array) -> Array:
    """Gradient of `softmax`.

        dx = y · (dy − Σ dy · y)

    The subtracted sum is the part of dy that would only rescale the whole row, which the output cannot see.
    """
    y_wide, dy = widen(y), widen(dy)
    return cast(y_wide * (dy - namespace(y).sum(dy * y_wide, axis=-1, keepdims=True)), y.dtype)


class LogSoftmaxSaved(NamedTuple):
    y: Array  # the log-probabilities
    mask: Array | None


def log_softmax(x: Array, *, mask: Array | None = None) -> tuple[Array, LogSoftmaxSaved]:
    """Turn scores into the logarithms of their softmax, without ever taking the logarithm of a tiny number.

        y = x − max x − log Σ exp(x − max x)

    Where `mask` is False the result is −inf, and the gradient zero.
    """
    xp = namespace(x)
    _, total = _exponentials(x, mask)
    wide = widen(x)
    y = wide - _finite_max(wide, mask) - xp.log(xp.where(total == 0, 1, total))
    if mask is not None:
        y = xp.where(mask, y, -xp.inf)
    y = cast(y, x.dtype)
    return y, LogSoftmaxSaved(y, mask)


def log_softmax_backward(dy: Array, saved: LogSoftmaxSaved) -> Array:
    """Gradient of `log_softmax`.

    dx = dy − exp(y) · Σ dy
    """
    xp = namespace(saved.y)
    wide = widen(dy)
    if saved.mask is not None:
        wide = xp.where(saved.mask, wide, 0)
    dx = wide - xp.exp(widen(saved.y)) * xp.sum(wide, axis=-1, keepdims=True)
    return cast(dx, saved.y.dtype)


def _exponentials(x: Array, mask: Array | None) -> tuple[Array, Array]:
    """Return exp(x − max x), zero where masked, and its sum along the last axis."""
    xp = namespace(x)
    if mask is not None:
        check_mask(mask, tuple(x.shape))
    x = widen(x)
    # Subtracting the maximum changes nothing after normalization and keeps exp from overflowing.
    shifted = x - _finite_max(x, mask)
    if mask is not None:
        shifted = xp.where(mask, shifted, -xp.inf)
    e = xp.exp(shifted)
    return e, xp.sum(e, axis=-1, keepdims=True)


def _finite_max(x: Array, mask: Array | None) -> Array:
    """Return the largest allowed entry of each row, zero where there is none."""
    xp = namespace(x)
    allowed = x if mask is None else xp.where(mask, x, -xp.inf)
    largest = xp.max(allowed, axis=-1, keepdims=True, initial=-xp.inf)
    return xp.where(xp.isfinite(largest), largest, 0)
