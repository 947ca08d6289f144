"""The affine map as a layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import ops
from ..arrays import Array, Tree
from ..ops.linear import LinearSaved
from .layer import Layer, Spec


@dataclass(frozen=True)
class Linear(Layer):
    """y = x w + b, with w (inputs, outputs) and an optional b (outputs,)."""

    inputs: int
    outputs: int
    bias: bool = True
    std: float | None = None  # spread of the first weights; None: 1/√inputs keeps the variance of x

    def specs(self) -> Tree:
        std = 1 / math.sqrt(self.inputs) if self.std is None else self.std
        specs = {"w": Spec((self.inputs, self.outputs), std)}
        return {**specs, "b": Spec((self.outputs,))} if self.bias else specs

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        y, _ = ops.linear(x, params["w"], params.get("b"))
        return y, LinearSaved(x, None, None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        dx, dw, db = ops.linear_backward(dy, LinearSaved(saved.x, params["w"], params.get("b")))
        return dx, {"w": dw, "b": db} if self.bias else {"w": dw}
