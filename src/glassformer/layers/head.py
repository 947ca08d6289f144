"""From vectors to logits over the vocabulary.

A logit is a dot product: how far the last vector h of a place points the way of a token's own vector. The tokens'
vectors may be those of the embedding (Press and Wolf 2017). That saves V · D weights, much of a small model, and what
is learned about a token in one role serves the other: two words that can stand in the same places are close to each
other both as something read and as something predicted.

A tied table E is used twice, and so has two gradients:

    x = E[ids]          dE[v] = Σ dx over the places where token v stood         only for tokens in the batch
    logits = h Eᵀ       dE[v] = Σ dlogits[v] · h over all places                 for all V tokens, at every step

The head returns the second one as `HeadGrads.table`; the model adds the first.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .. import ops
from ..core.arrays import Array, Tree
from ..ops.linear import LinearSaved
from .layer import Layer, RecordShape, Spec
from .linear import Linear, linear_backward
from .norm import Norm


class HeadGrads(NamedTuple):
    """Gradients of what the head read: its input, and the embedding it is tied to."""

    x: Array  # (..., D)
    table: Array | None  # (V, D); None for a frozen one, and for a head with a matrix of its own


@dataclass(frozen=True)
class TokenHead(Layer):
    """One logit per token of the vocabulary.

        logits = h Eᵀ + b  tied to the embedding E (V, D)        logits = h w + b  otherwise

    A `transform` norm puts act(h linear), normalized, before it, as BERT does: room to turn a vector made for the
    blocks into one to be compared with tokens. A bias can hold how frequent each token is, whatever the context. T5,
    whose tied rows have numbers of about one, divides h by √D (`scale`): its logits would begin at about √D.
    """

    width: int  # D
    vocab: int  # V
    tied: bool = True
    bias: bool = False
    scale: float = 1.0  # factor on h
    transform: Norm | None = None
    activation: str = "gelu"
    std: float | None = None

    @cached_property
    def inner(self) -> Linear:
        """The map before the logits, if there is one."""
        return Linear(self.width, self.width, True, self.std)

    def specs(self) -> Tree:
        """Return the specs of what the head does not borrow: the transform, an untied matrix (D, V), a bias (V,)."""
        specs: dict[str, Tree] = {}
        if self.transform is not None:
            specs["transform"] = {"linear": self.inner.specs(), "norm": self.transform.specs()}
        if not self.tied:
            # Small weights make the first predictions nearly even: the loss starts at log V.
            std = 0.1 / math.sqrt(self.width) if self.std is None else self.std
            specs["w"] = Spec((self.width, self.vocab), std)
        return {**specs, "b": Spec((self.vocab,))} if self.bias else specs

    @property
    def keeps_input(self) -> bool:
        """Whether the record holds x as it is."""
        return self.transform is not None or self.scale == 1

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what the logits are made of, where it is not x, and of the transform's record."""
        if self.transform is None:
            return {} if self.keeps_input else {"h": RecordShape(shape)}
        inner = {"activation": RecordShape(shape), "x": RecordShape(shape), **self.transform.record_shapes(shape)}
        return {"transform": inner, "h": RecordShape(shape)}

    def forward(self, params: Tree, x: Array, table: Array | None = None) -> tuple[Array, Tree]:
        """Return logits (..., V) for x (..., D); a tied head reads the embedding `table` (V, D)."""
        saved: dict[str, Tree] = {}
        if self.transform is not None:
            inner = saved["transform"] = {}
            x, inner["linear"] = self.inner.forward(params["transform"]["linear"], x)
            x, inner["activation"] = ops.activation_pair(self.activation)[0](x)
            x, inner["norm"] = self.transform.forward(params["transform"]["norm"], x)
        x = x if self.scale == 1 else ops.scale(x, factor=self.scale)[0]
        # In a model of tokens this is the widest array of all, V numbers for every place.
        logits, _ = ops.linear(x, self._matrix(params, table), params.get("b"))
        saved["logits"] = LinearSaved(x, None, None)
        return logits, saved

    def backward(self, params: Tree, saved: Tree, dy: Array, table: Array | None = None) -> tuple[HeadGrads, Tree]:
        """Return the gradients of h and of a tied table, and of the head's own parameters, for dy (..., V)."""
        # logits = h w + b,  w = Eᵀ if tied
        logits_saved = LinearSaved(saved["logits"].x, self._matrix(params, table), params.get("b"))
        dx, dw, db = linear_backward(params, logits_saved, dy)
        grads: dict[str, Tree] = {} if self.tied else {"w": dw}
        if self.bias:
            grads["b"] = db
        dx = dx if self.scale == 1 else ops.scale_backward(dx, None, factor=self.scale)
        # h = norm(act(x linear))
        if self.transform is not None:
            inner: dict[str, Tree] = {}
            kept = saved["transform"]
            dx, inner["norm"] = self.transform.backward(params["transform"]["norm"], kept["norm"], dx)
            dx = ops.activation_pair(self.activation)[1](dx, kept["activation"])
            dx, inner["linear"] = self.inner.backward(params["transform"]["linear"], kept["linear"], dx)
            grads["transform"] = inner
        # w = Eᵀ, so dE = dwᵀ
        return HeadGrads(dx, dw.T if self.tied and dw is not None else None), grads

    def _matrix(self, params: Tree, table: Array | None) -> Array:
        """Return the matrix (D, V) whose columns are the tokens' vectors: the head's own, or the table turned over."""
        if not self.tied:
            return params["w"]
        assert table is not None, "a tied head needs the embedding"
        return table.T
