"""The affine map as a layer.

What it adds to the op is where to begin. A sum of I independent products with weights of spread 1/√I has the variance
of one of its inputs, so that numbers neither swell nor fade from layer to layer before anything is learned. All weights
equal would not do: features that begin the same get the same gradients, and stay the same forever.
"""

import math
from dataclasses import dataclass

from .. import ops
from ..core.arrays import Array, Tree
from ..ops.linear import LinearSaved
from .layer import Frozen, Layer, Spec


@dataclass(frozen=True)
class Linear(Layer):
    """y = x w + b, with w (inputs, outputs) and an optional b (outputs,)."""

    inputs: int  # I
    outputs: int  # O
    bias: bool = True
    std: float | None = None  # spread of the first weights; None: 1/√inputs keeps the variance of x

    def specs(self) -> Tree:
        """Return the specs of w (I, O), random, and of b (O,), which begins at zero: the weights already differ."""
        std = 1 / math.sqrt(self.inputs) if self.std is None else self.std
        specs = {"w": Spec((self.inputs, self.outputs), std)}
        return {**specs, "b": Spec((self.outputs,))} if self.bias else specs

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        """Return y (..., O) for x (..., I). The record keeps x alone, as the weights stay with the parameters."""
        y, _ = ops.linear(x, params["w"], params.get("b"))
        return y, LinearSaved(x, None, None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        """Return dx (..., I) for dy (..., O), and the gradients of w and b, in their shapes."""
        # y = x w + b
        dx, dw, db = linear_backward(params, LinearSaved(saved.x, params["w"], params.get("b")), dy)
        return dx, {"w": dw, "b": db} if self.bias else {"w": dw}


def linear_backward(params: Tree, saved: LinearSaved, dy: Array) -> tuple[Array, Tree, Array | None]:
    """Return dx, dw and db of an affine map; of a frozen matrix, what its parameters want in the place of dw."""
    if not isinstance(params, Frozen):
        return ops.linear_backward(dy, saved)
    dx, _, db = ops.linear_backward(dy, saved, frozen=True)
    return dx, params.gradient(saved.x, dy), db
