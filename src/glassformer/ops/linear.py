"""The affine map: the one op that holds nearly all parameters and nearly all of the work.

Forward, an example costs I · O multiplications; backward, twice as many, once for dx and once for dw. Hence the rule
that a training step costs three times the forward pass: 6 additions and multiplications for each weight and example.
"""

from typing import NamedTuple

from ..core.arrays import Array, check_width, namespace
from ..core.dispatch import dispatched
from ..core.errors import ShapeError
from ..core.quantized import Quantized, check_learnable


class LinearSaved(NamedTuple):
    x: Array  # (..., I)
    w: Array  # (I, O)
    b: Array | None  # (O,)


@dispatched
def linear(x: Array, w: Array, b: Array | None = None) -> tuple[Array, LinearSaved]:
    """Mix the features of x (..., I) into new ones (..., O).

        y = x w + b,   w (I, O), b (O,)

    Every output is one column of w laid over the input: y_o = Σ_i x_i w_io + b_o.
    """
    check_matrix(w, b)
    check_width(x, w.shape[0])
    y = quantized_product(x, w) if isinstance(w, Quantized) else x @ w
    return (y if b is None else y + b), LinearSaved(x, w, b)


@dispatched
def linear_backward(dy: Array, saved: LinearSaved, *, frozen: bool = False) -> tuple[Array, Array, Array | None]:
    """Gradient of `linear`, every leading axis being one more example.

        dx = dy wᵀ      dw = xᵀ dy      db = Σ dy

    x_i reaches y_o through w_io alone, so what comes back to x_i is Σ_o dy_o w_io; and w_io has met x_i and dy_o once
    in every example, so its gradient is the sum of their products. A `frozen` w is not trained: dw is None.
    """
    check_learnable(saved.w)
    rows = flat(dy)
    # y = x w + b
    db = None if saved.b is None else rows.sum(axis=0)
    dw = None if frozen else flat(saved.x).T @ rows  # (I, N) (N, O)
    dx = dy @ saved.w.T  # (..., O) (O, I)
    return dx, dw, db


@dispatched
def quantized_product(x: Array, w: Quantized) -> Array:
    """Multiply x (..., I) by the numbers that a matrix in fewer bits w (I, O) stands for: y = x w."""
    return x @ w.dequantize()


def check_matrix(w: Array, b: Array | None) -> None:
    """Refuse weights that are not a matrix and a bias that does not fit it."""
    namespace(w)
    if w.ndim != 2 or (b is not None and tuple(b.shape) != (w.shape[1],)):
        shapes = f"w {tuple(w.shape)}" + ("" if b is None else f", b {tuple(b.shape)}")
        raise ShapeError(f"the weights have shapes {shapes}", hint="expected w (inputs, outputs) and b (outputs,)")


def flat(x: Array) -> Array:
    """View (..., D) as (N, D): all examples, one below the other."""
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return x.reshape(rows, x.shape[-1])


def sum_rows(x: Array) -> Array:
    """Sum (..., D) over all axes but the last: what every example adds to the gradient of a vector (D,)."""
    return flat(x).sum(axis=0)
