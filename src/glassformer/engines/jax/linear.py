"""The affine map in half precision: JAX multiplies numbers of 16 bits, and adds up what it multiplied in float32."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...arrays import Array, cast, check_width, is_half, namespace, widen
from ...dispatch import stands_for
from ...ops.linear import LinearSaved, check_matrix, flat
from ...quantized import Quantized, check_learnable


@stands_for(ops.linear, ops.linear_backward)
def linear(x: Array, w: Array, b: Array | None = None) -> tuple[Array, LinearSaved]:
    """Multiply in the type of x; wider w and b, as master copies are, are rounded to it."""
    if isinstance(w, Quantized) or not is_half(x):
        return NotImplemented
    check_matrix(w, b)
    check_width(x, w.shape[0])
    y = x @ cast(w, x.dtype)
    return (y if b is None else y + cast(b, x.dtype)), LinearSaved(x, w, b)


@stands_for(ops.linear_backward, ops.linear)
def linear_backward(dy: Array, saved: LinearSaved) -> tuple[Array, Array, Array | None]:
    """Multiply in the type of x; the gradients of w and b are summed in float32 and have the types of w and b."""
    if not is_half(saved.x):
        return NotImplemented
    check_learnable(saved.w)
    dy = cast(dy, saved.x.dtype)  # that of logits comes wide
    rows = flat(dy)
    dw = matmul_wide(flat(saved.x).T, rows)
    db = None if saved.b is None else cast(widen(rows).sum(axis=0), saved.b.dtype)
    return dy @ cast(saved.w, dy.dtype).T, cast(dw, saved.w.dtype), db


def matmul_wide(a: Array, b: Array) -> Array:
    """Return a @ b of half-precision arrays, summed in float32 and not rounded."""
    return namespace(a).matmul(a, b, preferred_element_type=np.float32)
