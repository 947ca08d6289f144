"""Softmax and log-softmax along the last axis, with masks.

Softmax turns scores of any sign into a distribution, and depends on their differences alone: adding a constant to a row
multiplies all exponentials by the same factor, which the division takes out again. Adding t to one score multiplies its
odds against every other by exp(t).
"""

from typing import NamedTuple

from ..core.arrays import Array, check_mask, namespace
from ..core.dispatch import dispatched


@dispatched
def softmax(x: Array, *, mask: Array | None = None) -> tuple[Array, Array]:
    """Turn scores (..., S) into weights that are positive and sum to one along the last axis.

        y = exp(x − max x) / Σ exp(x − max x)

    Where `mask` is False, or x is −inf, the weight is zero; a row with nothing left is all zeros.
    """
    e, total = _exponentials(x, mask)
    y = e / namespace(x).where(total == 0, 1, total)
    return y, y


@dispatched
def softmax_backward(dy: Array, y: Array) -> Array:
    """Gradient of `softmax`.

        dx = y · (dy − Σ dy · y)

    ∂y_i/∂x_j = y_i · (1 if i = j else 0) − y_i y_j: a score lifts its own weight, and all weights pay for it in
    proportion. The subtracted sum is the part of dy that would only rescale the whole row, which the output
    cannot see. It needs y alone: a masked weight is zero, and so is its gradient.
    """
    # y = e / total,  e = exp(x − max x),  total = Σ e
    return y * (dy - namespace(y).sum(dy * y, axis=-1, keepdims=True))


class LogSoftmaxSaved(NamedTuple):
    y: Array  # (..., S): the log-probabilities
    mask: Array | None  # (..., S)


@dispatched
def log_softmax(x: Array, *, mask: Array | None = None) -> tuple[Array, LogSoftmaxSaved]:
    """Turn scores (..., S) into the logarithms of their softmax, without ever taking the logarithm of a tiny number.

        y = x − max x − log Σ exp(x − max x)

    Where `mask` is False the result is −inf, and the gradient zero.
    """
    xp = namespace(x)
    _, total = _exponentials(x, mask)
    y = x - _finite_max(x, mask) - xp.log(xp.where(total == 0, 1, total))
    if mask is not None:
        y = xp.where(mask, y, -xp.inf)
    return y, LogSoftmaxSaved(y, mask)


@dispatched
def log_softmax_backward(dy: Array, saved: LogSoftmaxSaved) -> Array:
    """Gradient of `log_softmax`.

        dx = dy − exp(y) · Σ dy

    Raising one score lifts its own logarithm by one, and lowers all logarithms of the row by its softmax exp(y).
    """
    xp = namespace(saved.y)
    if saved.mask is not None:
        # y = −inf wherever x was masked: nothing comes back from there.
        dy = xp.where(saved.mask, dy, 0)
    # y = x − max x − log total: x stands there as itself, and in the total of its row
    return dy - xp.exp(saved.y) * xp.sum(dy, axis=-1, keepdims=True)


def _exponentials(x: Array, mask: Array | None) -> tuple[Array, Array]:
    """Return exp(x − max x), zero where masked, and its sum along the last axis."""
    xp = namespace(x)
    if mask is not None:
        check_mask(mask, tuple(x.shape))
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
