"""Normalization as layers: the ops of the same names, with gamma and beta as parameters.

gamma begins at one and beta at zero, so that at first a norm does nothing but normalize: it takes from a vector its
length, which would tell the next layer more about the layers before than about the token. Learning may then give back
a scale to the features that need one.

Records hold no parameters: what the ops saved of gamma and beta is taken out here, and put back for the backward pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .. import ops
from ..core import registry
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..ops.norm import LayerNormSaved
from .layer import Layer, RecordShape, Spec


@dataclass(frozen=True)
class LayerNorm(Layer):
    """y = gamma · (x − mean x) / √(var x + eps) + beta, for x (..., D).

    After the subtraction the D features sum to zero, and the layers that follow can no longer tell what their mean was.
    """

    width: int  # D
    eps: float = 1e-5  # keeps a vector of equal features, whose variance is zero, from being divided by zero
    bias: bool = True  # whether there is a beta

    def specs(self) -> Tree:
        """Return the specs of gamma and beta, (D,) each."""
        specs = {"gamma": Spec((self.width,), mean=1.0)}
        return {**specs, "beta": Spec((self.width,))} if self.bias else specs

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of the mean and of the spread, (..., 1) each."""
        return {name: RecordShape((*shape[:-1], 1), "params") for name in ("mean", "rstd")}

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        """Return y (..., D), and x with its mean and its spread."""
        y, saved = ops.layer_norm(x, params["gamma"], params.get("beta"), eps=self.eps)
        return y, LayerNormSaved(x, saved.mean, saved.rstd, None, None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        """Return dx (..., D), and the gradients of gamma and beta, summed over all vectors that they served."""
        # y = gamma · x̂ + beta,  x̂ = (x − mean) · rstd
        saved = LayerNormSaved(saved.x, saved.mean, saved.rstd, params["gamma"], params.get("beta"))
        dx, dgamma, dbeta = ops.layer_norm_backward(dy, saved)
        return dx, {"gamma": dgamma, "beta": dbeta} if self.bias else {"gamma": dgamma}


@dataclass(frozen=True)
class RMSNorm(Layer):
    """y = gamma · x / √(mean x² + eps), for x (..., D), as in T5, Llama and their relatives.

    Features influence each other through one common factor alone, the root mean square.
    """

    width: int  # D
    eps: float = 1e-6

    def specs(self) -> Tree:
        """Return the spec of gamma (D,)."""
        return {"gamma": Spec((self.width,), mean=1.0)}

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shape of the root mean square, (..., 1)."""
        return {"rrms": RecordShape((*shape[:-1], 1), "params")}

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        """Return y (..., D), and x with its root mean square."""
        y, saved = ops.rms_norm(x, params["gamma"], eps=self.eps)
        return y, saved._replace(gamma=None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        """Return dx (..., D), and the gradient of gamma."""
        # y = gamma · x · rrms
        dx, dgamma = ops.rms_norm_backward(dy, saved._replace(gamma=params["gamma"]))
        return dx, {"gamma": dgamma}


@dataclass(frozen=True)
class NoNorm(Layer):
    """y = x, for x (..., D): a model without norms, whose logits are a polynomial in its weights and patterns.

    y is another array than x, so that what a sublayer reads and the stream that it reads from are two values with two
    gradients here as well.
    """

    width: int  # D
    eps: float = 1e-5  # as all norms have; nothing is divided

    def specs(self) -> Tree:
        """Return no specs: there is nothing to learn."""
        return {}

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        """Return y (..., D), and x, which is kept to be looked at."""
        return ops.copy(x)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        """Return dx (..., D)."""
        # y = x
        return ops.copy_backward(dy, saved), {}


Norm: TypeAlias = LayerNorm | RMSNorm | NoNorm
"""The norm of a block: one of these, or any layer of the same form."""


def register_norm(name: str, make: Callable[[int, float], Layer]) -> None:
    """Register a norm of your own under a name, for configs: norm="name".

    make(width, eps) returns a layer from (..., D) to (..., D): a class with these two settings will do.
    """
    if not callable(make):
        raise ConfigError(f"{make!r} cannot be called", hint="pass a class or a function of width and eps")
    registry.register("norm", name, make)
