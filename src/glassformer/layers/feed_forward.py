"""The feed-forward layer: every token thinks for itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..arrays import Array, Tree
from .layer import Layer
from .linear import Linear


@dataclass(frozen=True)
class FeedForward(Layer):
    """Widen, bend, narrow again.

    y = act(x up) down            gated: y = (act(x gate) · x up) down
    """

    width: int
    hidden: int
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True
    std: float | None = None
    output_scale: float = 1.0  # factor on the spread of the first `down` weights

    def __post_init__(self) -> None:
        ops.activation_pair(self.activation)

    @cached_property
    def parts(self) -> dict[str, Linear]:
        """The linear maps by name."""
        inward = Linear(self.width, self.hidden, self.bias, self.std)
        std = (1 / math.sqrt(self.hidden) if self.std is None else self.std) * self.output_scale
        gate = {"gate": inward} if self.gated else {}
        return {**gate, "up": inward, "down": Linear(self.hidden, self.width, self.bias, std)}

    def specs(self) -> Tree:
        return {name: part.specs() for name, part in self.parts.items()}

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        saved: dict[str, Tree] = {}
        up, saved["up"] = self.parts["up"].forward(params["up"], x)
        if self.gated:
            gate, saved["gate"] = self.parts["gate"].forward(params["gate"], x)
            h, saved["activation"] = ops.gated(gate, up, activation=self.activation)
        else:
            h, saved["activation"] = ops.activation_pair(self.activation)[0](up)
        y, saved["down"] = self.parts["down"].forward(params["down"], h)
        return y, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        grads: dict[str, Tree] = {}
        dh, grads["down"] = self.parts["down"].backward(params["down"], saved["down"], dy)
        if self.gated:
            dgate, dup = ops.gated_backward(dh, saved["activation"], activation=self.activation)
            dx_gate, grads["gate"] = self.parts["gate"].backward(params["gate"], saved["gate"], dgate)
            dx, grads["up"] = self.parts["up"].backward(params["up"], saved["up"], dup)
            return dx + dx_gate, grads
        dup = ops.activation_pair(self.activation)[1](dh, saved["activation"])
        dx, grads["up"] = self.parts["up"].backward(params["up"], saved["up"], dup)
        return dx, grads
