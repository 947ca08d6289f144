"""From token ids to vectors: tokens, where they stand, and which text they belong to.

The three are added, not put side by side: in a wide space there is room for all of them, and the layers that follow
learn to tell them apart. The sum is where the residual stream begins.

Where the head is tied, the token table has a second reader, and so two gradients, which the model adds. This layer's
reaches the rows of tokens that occur in the batch; the head's reaches all rows, for every token gets a logit.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..core.arrays import Array, Tree, check_ids, check_length, half_type, namespace
from ..core.dispatch import dispatched
from ..core.errors import ShapeError
from ..ops.embedding import EmbeddingSaved
from .layer import Frozen, Layer, RecordShape, Spec
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
