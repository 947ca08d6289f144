"""From token ids to vectors: tokens, where they stand, and which text they belong to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .. import ops
from ..arrays import Array, Tree, cast, check_ids, check_length, is_traced, namespace, unbroadcast, widen
from ..backend import half_type
from ..errors import ShapeError
from ..ops.embedding import EmbeddingSaved
from .layer import Layer, Spec
from .norm import Norm
from .position import rows_of


@dataclass(frozen=True)
class Embedding(Layer):
    """y = scale · table[ids]."""

    vocab: int
    width: int
    scale: float = 1.0
    std: float | None = None  # spread of the first rows; None: 1/√width

    def specs(self) -> Tree:
        std = 1 / math.sqrt(self.width) if self.std is None else self.std
        return {"table": Spec((self.vocab, self.width), std)}

    def forward(self, params: Tree, ids: Array) -> tuple[Array, Tree]:
        y, saved = ops.embedding(params["table"], ids, scale=self.scale)
        return y, EmbeddingSaved(None, saved.ids)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        saved = EmbeddingSaved(params["table"], saved.ids)
        return None, {"table": ops.embedding_backward(dy, saved, scale=self.scale)}


@dataclass(frozen=True)
class InputEmbedding(Layer):
    """Tokens + positions + segments, then perhaps a norm and dropout.

    `positions` is "learned", "sinusoidal", or anything else for positions that enter elsewhere.
    """

    tokens: Embedding
    context: int
    positions: str = "learned"
    segments: int = 0
    norm: Norm | None = None
    dropout: float = 0.0
    compute: str | None = None  # the type of the result, where it is not that of the tables

    @cached_property
    def parts(self) -> dict[str, Layer]:
        """The layers by name."""
        parts: dict[str, Layer] = {"tokens": self.tokens}
        if self.positions == "learned":
            parts["positions"] = Embedding(self.context, self.tokens.width, std=self.tokens.std)
        if self.segments:
            parts["segments"] = Embedding(self.segments, self.tokens.width, std=self.tokens.std)
        if self.norm is not None:
            parts["norm"] = self.norm
        return parts

    def specs(self) -> Tree:
        return {name: part.specs() for name, part in self.parts.items()}

    def forward(
        self,
        params: Tree,
        ids: Array,
        *,
        segments: Array | None = None,
        positions: Array | None = None,
        key: Array | None = None,
    ) -> tuple[Array, Tree]:
        """Return vectors (..., T, D) for ids (..., T)."""
        self._check(ids, positions)
        saved: dict[str, Tree] = {}
        x, saved["tokens"] = self.tokens.forward(params["tokens"], ids)
        positions = np.arange(ids.shape[-1]) if positions is None else positions
        if self.positions == "learned":
            place, saved["positions"] = self.parts["positions"].forward(params["positions"], positions)
            x = x + place
        elif self.positions == "sinusoidal":
            x = x + namespace(x).asarray(self._sinusoids(positions), dtype=x.real.dtype)
        if self.segments:
            segments = namespace(x).zeros(ids.shape, dtype=np.int32) if segments is None else segments
            check_ids(segments, self.segments, what="segments")
            kind, saved["segments"] = self.parts["segments"].forward(params["segments"], segments)
            x = x + kind
        if self.norm is not None:
            x, saved["norm"] = self.norm.forward(params["norm"], x)
        if key is not None and self.dropout > 0:
            x, saved["dropout"] = ops.dropout(x, key, rate=self.dropout)
        x = x if self.compute is None else cast(x, half_type(x, self.compute))
        saved["output"] = x
        return x, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        grads: dict[str, Tree] = {}
        dy = dy if self.compute is None else widen(dy)
        if "dropout" in saved:
            dy = ops.dropout_backward(dy, saved["dropout"], rate=self.dropout)
        if self.norm is not None:
            dy, grads["norm"] = self.norm.backward(params["norm"], saved["norm"], dy)
        for name in ("segments", "positions", "tokens"):
            if name in self.parts:
                # Positions (T,) were added to every sequence of the batch, so their gradients are summed over it.
                shape = (*saved[name].ids.shape, dy.shape[-1])
                rows = dy if shape == dy.shape else cast(unbroadcast(dy, shape), dy.dtype)
                _, grads[name] = self.parts[name].backward(params[name], saved[name], rows)
        return None, grads

    def _sinusoids(self, positions: Array) -> Array:
        if is_traced(positions):
            return rows_of(ops.sinusoidal(np.arange(self.context), self.tokens.width), positions)
        return ops.sinusoidal(positions, self.tokens.width)

    def _check(self, ids: Array, positions: Array | None) -> None:
        namespace(ids)
        if ids.ndim < 1:
            raise ShapeError("the token ids are a single number", hint="pass a sequence of ids, shape (T,) or (B, T)")
        check_length(ids.shape[-1], self.context)
        if positions is not None:
            check_ids(positions, self.context, what="positions")
