"""Normalization as layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .. import ops
from ..arrays import Array, Tree
from ..ops.norm import LayerNormSaved
from .layer import Layer, Spec


@dataclass(frozen=True)
class LayerNorm(Layer):
    """y = gamma · (x − mean x) / √(var x + eps) + beta."""

    width: int
    eps: float = 1e-5
    bias: bool = True

    def specs(self) -> Tree:
        specs = {"gamma": Spec((self.width,), mean=1.0)}
        return {**specs, "beta": Spec((self.width,))} if self.bias else specs

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        y, saved = ops.layer_norm(x, params["gamma"], params.get("beta"), eps=self.eps)
        return y, LayerNormSaved(x, saved.mean, saved.rstd, None, None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        saved = LayerNormSaved(saved.x, saved.mean, saved.rstd, params["gamma"], params.get("beta"))
        dx, dgamma, dbeta = ops.layer_norm_backward(dy, saved)
        return dx, {"gamma": dgamma, "beta": dbeta} if self.bias else {"gamma": dgamma}


@dataclass(frozen=True)
class RMSNorm(Layer):
    """y = gamma · x / √(mean x² + eps)."""

    width: int
    eps: float = 1e-6

    def specs(self) -> Tree:
        return {"gamma": Spec((self.width,), mean=1.0)}

    def forward(self, params: Tree, x: Array) -> tuple[Array, Tree]:
        y, saved = ops.rms_norm(x, params["gamma"], eps=self.eps)
        return y, saved._replace(gamma=None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        dx, dgamma = ops.rms_norm_backward(dy, saved._replace(gamma=params["gamma"]))
        return dx, {"gamma": dgamma}


Norm: TypeAlias = LayerNorm | RMSNorm
