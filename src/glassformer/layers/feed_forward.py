"""The feed-forward layer: every token thinks for itself.

A hidden feature asks one question of the vector, by its column of `up`, and if the answer is yes adds its row of `down`
to the stream: the layer is a table of F patterns and what follows from each (Geva et al. 2021). Without the bend in
between, up and down would be one D × D matrix, however large F is.

The usual F = 4 D (Vaswani et al. 2017) gives the layer 8 D² weights, twice as many as the four D × D matrices of
attention: two thirds of a block. Widening is what makes bending useful. An activation flattens one side of each hidden
feature, which in D features would lose half of what came in; with more features than dimensions, what one flattens
another one keeps.

Gating puts a product where the bend was: a second matrix decides, token by token, how far each feature is let through.
In the comparisons of Shazeer (2020) it learned better with as many weights: three matrices have them at F = 8/3 D.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..core.arrays import Array, Tree
from .layer import Layer, RecordShape
from .linear import Linear


@dataclass(frozen=True)
class FeedForward(Layer):
    """Widen, bend, narrow again.

    y = act(x up) down            gated: y = (act(x gate) · x up) down
    """

    width: int  # D
    hidden: int  # F
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True
    std: float | None = None  # spread of the first weights; None: 1/√ of the inputs of each matrix
    output_scale: float = 1.0  # factor on the spread of the first `down` weights

    def __post_init__(self) -> None:
        ops.activation_pair(self.activation)

    @cached_property
    def parts(self) -> dict[str, Linear]:
        """The linear maps by name: `up` and perhaps `gate` (D, F), and `down` (F, D), which writes to the stream."""
        inward = Linear(self.width, self.hidden, self.bias, self.std)
        std = (1 / math.sqrt(self.hidden) if self.std is None else self.std) * self.output_scale
        gate = {"gate": inward} if self.gated else {}
        return {**gate, "up": inward, "down": Linear(self.hidden, self.width, self.bias, std)}

    def specs(self) -> Tree:
        """Return the `Spec` of the two or three matrices and their biases."""
        return {name: part.specs() for name, part in self.parts.items()}

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of the hidden features before and after the activation, and of the gate, (..., F) each."""
        names = ("gate", "up", "h") if self.gated else ("up", "h")
        return {name: RecordShape((*shape[:-1], self.hidden)) for name in names}

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        """Return y (..., D) for x (..., D): all places at once, as they never meet here."""
        saved: dict[str, Tree] = {}
        up, saved["up"] = self.parts["up"].forward(params["up"], x)  # (..., F)
        if self.gated:
            gate, saved["gate"] = self.parts["gate"].forward(params["gate"], x)
            h, saved["activation"] = ops.gated(gate, up, activation=self.activation)
        else:
            h, saved["activation"] = ops.activation_pair(self.activation)[0](up)
        y, saved["down"] = self.parts["down"].forward(params["down"], h)  # (..., F) to (..., D)
        return y, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        """Return dx (..., D) and the gradients of the matrices: the lines of `forward`, from the last."""
        grads: dict[str, Tree] = {}
        # y = h down
        dh, grads["down"] = self.parts["down"].backward(params["down"], saved["down"], dy)
        if self.gated:
            # h = act(gate) · up,  gate = x gate,  up = x up:  x is read twice, and its gradients add up
            dgate, dup = ops.gated_backward(dh, saved["activation"], activation=self.activation)
            dx_gate, grads["gate"] = self.parts["gate"].backward(params["gate"], saved["gate"], dgate)
            dx, grads["up"] = self.parts["up"].backward(params["up"], saved["up"], dup)
            return ops.add(dx, dx_gate)[0], grads
        # h = act(up),  up = x up
        dup = ops.activation_pair(self.activation)[1](dh, saved["activation"])
        dx, grads["up"] = self.parts["up"].backward(params["up"], saved["up"], dup)
        return dx, grads
