"""From token ids to vectors, and from vectors to logits over the vocabulary.

Tokens, where they stand and which text they belong to are added, not put side by side: in a wide space there is room
for all of them, and the layers that follow learn to tell them apart. The sum is where the residual stream begins.

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
from ..core.arrays import Array, Tree, check_ids, check_length, half_type, namespace
from ..core.dispatch import dispatched
from ..core.errors import ShapeError
from ..ops.embedding import EmbeddingSaved
from ..ops.linear import LinearSaved
from .layer import Frozen, Layer, RecordShape, Spec
from .linear import Linear, linear_backward
from .norm import Norm


@dataclass(frozen=True)
class Embedding(Layer):
    """y = scale · table[ids], from ids (...) to vectors (..., D).

    The original Transformer (Vaswani et al. 2017) scales by √D: rows drawn with a spread of 1/√D, the size a tied head
    wants them in, then enter with numbers of about one, as large as the sines and cosines that are added to them.
    """

    vocab: int  # V
    width: int  # D
    scale: float = 1.0
    std: float | None = None  # spread of the first rows; None: 1/√width

    def specs(self) -> Tree:
        """Return the spec of the table (V, D)."""
        std = 1 / math.sqrt(self.width) if self.std is None else self.std
        return {"table": Spec((self.vocab, self.width), std)}

    def forward(self, params: Tree, ids: Array) -> tuple[Array, Tree]:
        """Look up ids (...). The record keeps only these: a table belongs to the parameters."""
        y, saved = ops.embedding(params["table"], ids, scale=self.scale)
        return y, EmbeddingSaved(None, saved.ids)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        """Return the gradient of the table for dy (..., D); ids have none, so there is no dx to hand on."""
        if isinstance(params, Frozen):
            return None, {"table": None}
        # y = scale · table[ids]
        saved = EmbeddingSaved(params["table"], saved.ids)
        return None, {"table": ops.embedding_backward(dy, saved, scale=self.scale)}


@dataclass(frozen=True)
class InputEmbedding(Layer):
    """Tokens + positions + segments, then perhaps a norm and dropout.

        x = tokens[ids] + positions[0 … T−1] + segments[which text]      y = dropout(norm x)

    Segments tell two texts in one sequence apart, such as a question and a passage; BERT learns a vector for each
    (Devlin et al. 2019) and normalizes the sum. `positions` is "learned", "sinusoidal", or anything else for positions
    that enter elsewhere.
    """

    tokens: Embedding
    context: int  # the longest sequence; a table of learned positions has no row beyond it
    positions: str = "learned"
    segments: int = 0  # how many texts a sequence may hold; 0: no segments
    norm: Norm | None = None
    dropout: float = 0.0
    compute: str | None = None  # the type of the result, where it is not that of the tables

    @cached_property
    def parts(self) -> dict[str, Layer]:
        """The layers by name. Learned positions and segments are tables like that of the tokens, with other ids."""
        parts: dict[str, Layer] = {"tokens": self.tokens}
        if self.positions == "learned":
            parts["positions"] = Embedding(self.context, self.tokens.width, std=self.tokens.std)
        if self.segments:
            parts["segments"] = Embedding(self.segments, self.tokens.width, std=self.tokens.std)
        if self.norm is not None:
            parts["norm"] = self.norm
        return parts

    def specs(self) -> Tree:
        """Return the specs of all parts that there are."""
        return {name: part.specs() for name, part in self.parts.items()}

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of y, and of what normalized and dropped it, for ids of this shape (..., T)."""
        shape = (*shape, self.tokens.width)
        shapes: dict[str, Tree] = {"output": RecordShape(shape)}
        if self.norm is not None:  # which reads the sum in the precision of the tables
            shapes["norm"] = {"x": RecordShape(shape, "params"), **self.norm.record_shapes(shape)}
        return shapes | ({"dropout": RecordShape(shape, "bool")} if self.dropout > 0 else {})

    def forward(
        self,
        params: Tree,
        ids: Array,
        *,
        segments: Array | None = None,
        positions: Array | None = None,
        key: Array | None = None,
    ) -> tuple[Array, Tree]:
        """Return vectors (..., T, D) for ids (..., T).

        segments    (..., T) which text each token belongs to, the first unless given
        positions   (T,) or (..., T) where each stands, 0, 1, … unless given
        """
        self._check(ids, positions)
        saved: dict[str, Tree] = {}
        x, saved["tokens"] = self.tokens.forward(params["tokens"], ids)
        positions = ops.positions(ids, axis=-1) if positions is None else positions
        if self.positions == "learned":
            positioned, saved["positions"] = self.parts["positions"].forward(params["positions"], positions)
            x, _ = ops.add(x, positioned)  # (..., T, D) + (T, D): the same places in every sequence, unless given
        elif self.positions == "sinusoidal":
            x, _ = ops.add(x, ops.astype(self.sinusoids(positions), x, dtype=x.real.dtype))
        if self.segments:
            segments = ops.zeros_like(ids) if segments is None else segments
            check_ids(segments, self.segments, what="segments")
            text, saved["segments"] = self.parts["segments"].forward(params["segments"], segments)
            x, _ = ops.add(x, text)
        if self.norm is not None:
            x, saved["norm"] = self.norm.forward(params["norm"], x)
        if key is not None and self.dropout > 0:
            x, saved["dropout"] = ops.dropout(x, key, rate=self.dropout)
        # Tables are summed in their own precision: from here on the stream has that of the computation.
        if self.compute is not None:
            x = ops.astype(x, x, dtype=half_type(x, self.compute))
        saved["output"] = x
        return x, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        """Return the gradients of the tables and of the norm for dy (..., T, D)."""
        grads: dict[str, Tree] = {}
        # y = dropout(norm x)
        if "dropout" in saved:
            dy = ops.dropout_backward(dy, saved["dropout"], rate=self.dropout)
        if self.norm is not None:
            dy, grads["norm"] = self.norm.backward(params["norm"], saved["norm"], dy)
        # x = tokens + positions + segments: each gets all of dy
        for name in ("segments", "positions"):
            if name in self.parts:
                dy, rows = ops.add_backward(dy, None)
                # Positions (T,) were added to every sequence of the batch, so their gradients are summed over it.
                read = saved[name].ids
                rows = rows if rows.shape[:-1] == read.shape else ops.sum_to(rows, read)
                _, grads[name] = self.parts[name].backward(params[name], saved[name], rows)
            elif name == "positions" and self.positions == "sinusoidal":
                dy, _ = ops.add_backward(dy, None)  # sines and cosines are constants
        _, grads["tokens"] = self.tokens.backward(params["tokens"], saved["tokens"], dy)
        return None, grads

    @dispatched
    def sinusoids(self, positions: Array) -> Array:
        """Return the sinusoidal encoding of positions (..., T), all of them below the context: (..., T, D)."""
        return ops.sinusoidal(positions, self.tokens.width)

    def _check(self, ids: Array, positions: Array | None) -> None:
        """Refuse what is no sequence, one longer than the context, and positions beyond it."""
        namespace(ids)
        if ids.ndim < 1:
            raise ShapeError("the token ids are a single number", hint="pass a sequence of ids, shape (T,) or (B, T)")
        check_length(ids.shape[-1], self.context)
        if positions is not None:
            check_ids(positions, self.context, what="positions")


# --- the head ---------------------------------------------------------------------------------------------------------


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
