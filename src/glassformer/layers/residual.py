"""The residual connection: what a sublayer finds is added to what came in.

The sum lets gradients pass unchanged from the last layer to the first: with y = x + f(x), dx = dy + what f sends back.
A deep stack learns because of this path, whatever its sublayers do at first (He et al. 2016).

Seen from the side, x is a stream of T vectors that runs through the model. No sublayer replaces it: each reads it, and
writes by adding. What an early layer wrote stays there to be read by any later one, and the last vector is the sum of
the embedding and of everything that all sublayers had to say, which is why it can be taken apart into their shares.
"""

from dataclasses import dataclass
from typing import Any

from .. import ops
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from .layer import InputGrads, Layer, RecordShape, sum_of
from .norm import Norm


@dataclass(frozen=True)
class Residual(Layer):
    """One sublayer f, a norm before it or after the sum, and dropout on what it found.

        pre-norm:   y = x + dropout(f(norm x))          post-norm:   y = norm(x + dropout(f(x)))

    With post-norm, as in the original paper, every sum is normalized, and the gradient passes through every norm: where
    both terms are of equal size each divides it by about √2, so through L blocks of two sublayers the direct path loses
    a factor of 2^L, and training needs a careful warm-up. With pre-norm the path from input to output is a plain sum,
    and its gradient arrives as it left; such stacks train without a warm-up (Xiong et al. 2020). In return the stream
    grows with every block, since nothing ever normalizes it, and needs one last norm before the head.

    Parameters and records stand under the sublayer's `name`, those of its norm under name_norm.
    """

    name: str
    sublayer: Layer
    norm: Norm
    norm_position: str = "pre"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.norm_position not in ("pre", "post"):
            raise ConfigError(f"norm_position is {self.norm_position!r}", hint='use "pre" or "post"')

    def specs(self) -> Tree:
        """Return the specs of the norm and of the sublayer, under their names."""
        return {f"{self.name}_norm": self.norm.specs(), self.name: self.sublayer.specs()}

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what norm and sublayer keep, of what was normalized for one of them, and of dropout."""
        name = self.name
        shapes = {f"{name}_norm": self.norm.record_shapes(shape), name: self.sublayer.record_shapes(shape)}
        # With pre-norm the sublayer keeps what the norm returned, with post-norm the norm keeps the sum.
        shapes[f"{name}_x"] = RecordShape(shape)
        return shapes | ({f"{name}_dropout": RecordShape(shape, "bool")} if self.dropout > 0 else {})

    def forward(
        self, params: Tree, x: Array, extra_inputs: dict[str, Any] | None = None, key: Array | None = None
    ) -> tuple[Array, Tree]:
        """Return y (..., T, D) for x; `extra_inputs` is what else the sublayer reads, a `key` turns dropout on."""
        name, norm = self.name, f"{self.name}_norm"
        saved: dict[str, Tree] = {}
        # h = dropout(f(norm x)), or without the norm
        h = x
        if self.norm_position == "pre":
            h, saved[norm] = self.norm.forward(params[norm], h)
        h, saved[name] = self.sublayer.forward(params[name], h, **(extra_inputs or {}))
        if key is not None and self.dropout > 0:
            h, saved[f"{name}_dropout"] = ops.dropout(h, key, rate=self.dropout)
        y = self.join(x, h)
        if self.norm_position == "post":
            y, saved[norm] = self.norm.forward(params[norm], y)
        return y, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        """Return the gradients of all that was read, and of the parameters: the forward list, from the end."""
        name, norm = self.name, f"{self.name}_norm"
        grads: dict[str, Tree] = {}
        # y = norm(x + h), with post-norm
        if self.norm_position == "post":
            dy, grads[norm] = self.norm.backward(params[norm], saved[norm], dy)
        # y = x + h: both get all of it, and what h got goes on through the sublayer
        dx, dh = self.join_backward(dy)
        if f"{name}_dropout" in saved:
            dh = ops.dropout_backward(dh, saved[f"{name}_dropout"], rate=self.dropout)
        # h = dropout(f(norm x))
        read, grads[name] = self.sublayer.backward(params[name], saved[name], dh)
        read = read if isinstance(read, InputGrads) else InputGrads(read)
        dh = read.x
        if self.norm_position == "pre":
            dh, grads[norm] = self.norm.backward(params[norm], saved[norm], dh)
        # x was read twice, by the sum and by the sublayer
        return read._replace(x=sum_of(dx, dh)), grads

    def join(self, x: Array, h: Array) -> Array:
        """Return x + h, of what came in and what the sublayer found."""
        return ops.add(x, h)[0]

    def join_backward(self, dy: Array) -> tuple[Array | None, Array]:
        """Return the gradients of x, None where it goes no further, and of h."""
        return ops.add_backward(dy, None)


@dataclass(frozen=True)
class Direct(Residual):
    """One sublayer without its residual connection: what it finds takes the place of what came in.

        pre-norm:   y = dropout(f(norm x))          post-norm:   y = norm(dropout(f(x)))

    There is no stream: what f does not pass on is lost, and every gradient has to go through every sublayer.
    """

    def join(self, x: Array, h: Array) -> Array:
        return h

    def join_backward(self, dy: Array) -> tuple[Array | None, Array]:
        return None, dy
