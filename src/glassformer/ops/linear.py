"""The affine map, and sums over all but the last axis."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import Array, cast, check_width, namespace, narrow, widen
from ..backend import matmul_wide
from ..engine import accelerated
from ..errors import ShapeError
from ..quantized import Quantized, check_learnable
from .quantized import quantized_product


class LinearSaved(NamedTuple):
    x: Array
    w: Array
    b: Array | None


@accelerated
def linear(x: Array, w: Array, b: Array | None = None) -> tuple[Array, LinearSaved]:
    """Mix the features of x (..., I) into new ones.

    y = x w + b,   w (I, O), b (O,)

    For x of half precision, wider w and b are rounded to its type; their gradients keep their own.
    """
    check_matrix(w, b)
    check_width(x, w.shape[0])
    y = quantized_product(x, w) if isinstance(w, Quantized) else x @ narrow(w, x)
    return (y if b is None else y + narrow(b, y)), LinearSaved(x, w, b)


@accelerated
def linear_backward(dy: Array, saved: LinearSaved) -> tuple[Array, Array, Array | None]:
    """Gradient of `linear`, every leading axis being one more example.

    dx = dy wᵀ      dw = xᵀ dy      db = Σ dy
    """
    check_learnable(saved.w)
    rows = flat(dy)
    dw = cast(matmul_wide(flat(saved.x).T, rows), saved.w.dtype)
    db = None if saved.b is None else cast(widen(rows).sum(axis=0), saved.b.dtype)
    return dy @ narrow(saved.w, dy).T, dw, db


def check_matrix(w: Array, b: Array | None) -> None:
    """Refuse weights that are not a matrix and a bias that does not fit it."""
    namespace(w)
    if w.ndim != 2 or (b is not None and tuple(b.shape) != (w.shape[1],)):
        shapes = f"w {tuple(w.shape)}" + ("" if b is None else f", b {tuple(b.shape)}")
        raise ShapeError(f"the weights have shapes {shapes}", hint="expected w (inputs, outputs) and b (outputs,)")


def flat(x: Array) -> Array:
    """View (..., D) as (N, D)."""
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return x.reshape(rows, x.shape[-1])
