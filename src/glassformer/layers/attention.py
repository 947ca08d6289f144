"""Multi-head attention: every token gathers from the others, several times at once.

Each head looks with queries, keys and values of its own, in C of the channels; what all heads found is put side by side
and mixed by one more matrix. The parameters are these four matrices: attention itself has none.

One head makes one average, and cannot at once look at the verb and at the last comma; H heads of D / H channels cost as
many multiplications as one of D, and look at H places (Vaswani et al. 2017). What a head reads and writes is given by
products of two of the matrices: query keyᵀ says which token it attends to, value output what it carries over.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from .. import ops
from ..core.arrays import Array, Tree, check_mask, check_width, kept, namespace
from ..core.dispatch import dispatched, located
from ..core.errors import ConfigError
from .cache import KeyValues
from .layer import InputGrads, Layer, RecordShape
from .linear import Linear


class AttentionRecord(NamedTuple):
    """The record of attention, from its input to its output."""

    query: Tree  # what the queries were made from, (..., T, D)
    key: Tree  # None in self-attention, where keys and values read what the queries read
    value: Tree  # likewise; in cross-attention both read the memory (..., S, D)
    rotation: Tree  # cosines and sines that turned queries and keys, or None
    attend: Tree  # q, k, v (after rotation, by head), the weights, and what dropout kept
    output: Tree  # the heads side by side, (..., T, H·C), which `output` mixed

    @property
    def weights(self) -> Array:
        """The attention weights (..., H, T, S). Tiled attention keeps none: ask `Attention.weights`."""
        return kept(self.attend.weights)


@dataclass(frozen=True)
class Attention(Layer):
    """Multi-head attention over x (..., T, D) itself or over a memory (..., S, D).

        q = x query,  k = m key,  v = m value       (m the memory, or x; split into heads of C channels)
        y = concat(attention(q, k, v) of each head) output

    Self-attention reads the sequence it is part of; cross-attention asks with one sequence and finds its answers in
    another, as a translation looks back at its source. kv_heads < heads shares keys and values among groups of heads
    (1: multi-query attention): the queries still differ, and a cache holds heads / kv_heads times less.
    """

    width: int  # D
    heads: int  # H
    kv_heads: int | None = None  # K; None: as many as heads
    head_width: int | None = None  # C; None: width / heads, so that all heads fill the width
    bias: bool = True
    output_bias: bool | None = None  # None: as bias
    scale: float | None = None  # factor on the scores; None: 1/√C
    pattern: ops.Pattern = ops.FULL
    pairing: str = "halves"
    dropout: float = 0.0
    tile: int | None = None  # None: all weights at once; else in tiles of this size
    learned_bias: bool = True  # whether a bias on the scores wants a gradient
    std: float | None = None
    output_scale: float = 1.0  # factor on the spread of the first output weights

    def __post_init__(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise ConfigError(
                f"width {self.width} is not divisible by {self.heads} heads", hint="change one, or set head_width"
            )
        if self.heads % self.key_heads:
            raise ConfigError(
                f"{self.heads} heads cannot share {self.key_heads} key/value heads evenly",
                hint="kv_heads must divide heads",
            )

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def channels(self) -> int:
        """Channels per head."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @cached_property
    def parts(self) -> dict[str, Linear]:
        """The linear maps by name: (D, H·C) for queries, (D, K·C) for keys and for values, (H·C, D) for the output.

        `output` alone writes to the residual stream: its first weights are smaller by `output_scale`, so that the sum
        of what many blocks add begins no larger than what one would.
        """
        inner, shared = self.heads * self.channels, self.key_heads * self.channels  # H·C, K·C
        output_bias = self.bias if self.output_bias is None else self.output_bias
        std = (1 / math.sqrt(inner) if self.std is None else self.std) * self.output_scale
        return {
            "query": Linear(self.width, inner, self.bias, self.std),
            "key": Linear(self.width, shared, self.bias, self.std),
            "value": Linear(self.width, shared, self.bias, self.std),
            "output": Linear(inner, self.width, output_bias, std),
        }

    def specs(self) -> Tree:
        """Return the `Spec` of the four matrices and their biases."""
        return {name: part.specs() for name, part in self.parts.items()}

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of q, k, v, the mixture, and the weights with what dropout kept; of tiles, their sums."""
        *batch, T, _ = shape
        heads = {"q": self.heads, "k": self.key_heads, "v": self.key_heads, "mixed": self.heads}
        shapes = {name: RecordShape((*batch, H, T, self.channels)) for name, H in heads.items()}
        if self.tile is not None:
            return {**shapes, "log_sum": RecordShape((*batch, self.heads, T, 1), "params")}
        shapes["weights"] = RecordShape((*batch, self.heads, T, T))
        return shapes | ({"keep": RecordShape((*batch, self.heads, T, T), "bool")} if self.dropout > 0 else {})

    @dispatched(by="x")
    def forward(
        self,
        params: Tree,
        x: Array,
        memory: Array | None = None,
        bias: Array | None = None,
        *,
        mask: Array | None = None,
        rotation: tuple[Array, Array] | None = None,
        key: Array | None = None,
        cache: KeyValues | tuple[Array, Array] | None = None,
    ) -> tuple[Array, AttentionRecord]:
        """Attend. `mask` broadcasts to (..., T, S), `bias` to (..., H, T, S); a `key` turns dropout on.

        cache   what earlier tokens left: their keys and values, which those of x join, and to all of which x attends;
                or the keys and values of a memory, that `remember` computed once. Masks and biases are then about all
                keys that it holds.
        """
        check_width(x, self.width)
        # q = x query,  k = m key,  v = m value
        q, query = self._heads(params["query"], "query", x)  # (..., H, T, C)
        is_self, kept_key, kept_value = memory is None, None, None
        if isinstance(cache, tuple):
            k, v = cache
        else:
            k, kept_key = self._heads(params["key"], "key", x if is_self else memory)  # (..., K, S, C)
            v, kept_value = self._heads(params["value"], "value", x if is_self else memory)
        # Turned before they are cached: a key's angle belongs to its own place, and never changes again.
        turned = None
        if rotation is not None:
            q, turned = ops.rotary(q, *rotation, pairing=self.pairing)
            k, _ = ops.rotary(k, *rotation, pairing=self.pairing)
        settings: dict[str, Any] = {"pattern": self.pattern, "key": key, "rate": self.dropout, "scale": self.scale}
        if cache is not None:
            mixed, attend = self.attend_from(cache, q, k, v, bias, mask)
        elif self.tile is None:
            mixed, attend = ops.attention(q, k, v, bias, mask=_with_head_axis(mask, q, k), **settings)
            # Without a bias in the record, backward makes no gradient for it. Tiles compute scores from it again.
            attend = attend if self.learned_bias else attend._replace(bias=None)
        else:
            mask = _with_head_axis(mask, q, k)
            mixed, attend = ops.attention_tiled(q, k, v, bias, mask=mask, tile=self.tile, **settings)
        # y = concat(heads) output
        merged, _ = ops.merge_heads(mixed, heads=self.heads)
        y, output = self.parts["output"].forward(params["output"], merged)
        return y, AttentionRecord(
            query, None if is_self else kept_key, None if is_self else kept_value, turned, attend, output
        )

    @dispatched(by="dy")
    def backward(self, params: Tree, saved: AttentionRecord, dy: Array) -> tuple[InputGrads, Tree]:
        """Return the gradients of all that was read, and of the four matrices: the forward list, from the end.

        A cache plays no part: it serves writing, and training reads all of a sequence at once.
        """
        grads: dict[str, Tree] = {}
        # y = merged heads · output
        dmixed, grads["output"] = self.parts["output"].backward(params["output"], saved.output, dy)
        dmixed = ops.merge_heads_backward(dmixed, None, heads=self.heads)
        # heads = attention(q, k, v), of turned queries and keys
        settings: dict[str, Any] = {"pattern": self.pattern, "rate": self.dropout, "scale": self.scale}
        if self.tile is None:
            dq, dk, dv, dbias = ops.attention_backward(dmixed, saved.attend, **settings)
        else:
            dq, dk, dv, dbias = ops.attention_tiled_backward(dmixed, saved.attend, tile=self.tile, **settings)
        if saved.rotation is not None:
            dk = ops.rotary_backward(dk, saved.rotation, pairing=self.pairing)
            dq = ops.rotary_backward(dq, saved.rotation, pairing=self.pairing)
        # q = x query,  k = m key,  v = m value
        dx, grads["query"] = self._heads_backward(params["query"], "query", saved.query, dq)
        # Queries, keys and values read the same x, or two of them the same memory: their gradients add up.
        is_self = saved.key is None
        read_key, read_value = (saved.query, saved.query) if is_self else (saved.key, saved.value)
        dseen, grads["key"] = self._heads_backward(params["key"], "key", read_key, dk)
        dvalue, grads["value"] = self._heads_backward(params["value"], "value", read_value, dv)
        dseen, _ = ops.add(dseen, dvalue)
        if is_self:
            return InputGrads(ops.add(dx, dseen)[0], None, dbias), grads
        return InputGrads(dx, dseen, dbias), grads

    def weights(self, saved: AttentionRecord) -> Array:
        """Return the attention weights (..., H, T, S), computed again if the forward pass did not keep them."""
        if self.tile is None:
            return saved.weights
        q, k, v, bias, mask, *_ = saved.attend
        return ops.attention(q, k, v, bias, mask=mask, pattern=self.pattern, scale=self.scale)[1].weights

    def remember(self, params: Tree, memory: Array) -> tuple[Array, Array]:
        """Return the keys and values of a memory (..., S, D), which `forward` takes as its cache.

        Every token that a decoder writes looks at the same source, so these are the same at every step.
        """
        return self._heads(params["key"], "key", memory)[0], self._heads(params["value"], "value", memory)[0]

    @located
    def _heads(self, params: Tree, name: str, x: Array) -> tuple[Array, Tree]:
        """Return the queries, keys or values of x by head, and the record of the matrix that made them."""
        y, saved = self.parts[name].forward(params, x)
        return ops.split_heads(y, heads=self.heads if name == "query" else self.key_heads)[0], saved

    @located
    def _heads_backward(self, params: Tree, name: str, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        """Return the gradients of x and of the matrix that made queries, keys or values."""
        dy = ops.split_heads_backward(dy, None, heads=dy.shape[-3])
        return self.parts[name].backward(params, saved, dy)

    @dispatched(by="q")
    def attend_from(
        self, cache: Any, q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None
    ) -> tuple[Array, Tree]:
        """Attend to all that a cache holds, once the new keys and values have joined it."""
        allowed = None
        # A memory's keys are all there already, and a decoder may see all of its source.
        if not isinstance(cache, tuple):
            allowed = cache.allowed(self.pattern, q.shape[-2])
            k, v = cache.append(k, v)
        mask = _with_head_axis(mask, q, k)
        if allowed is not None:
            allowed = namespace(q).asarray(allowed)
            mask = allowed if mask is None else ops.both_masks(mask, allowed)
        return ops.attention(q, k, v, bias, mask=mask, scale=self.scale)


def _with_head_axis(mask: Array | None, q: Array, k: Array) -> Array | None:
    """Check a mask (..., T, S) and let it serve all heads."""
    if mask is None:
        return None
    check_mask(mask, (*q.shape[:-3], q.shape[-2], k.shape[-2]))
    return mask[..., None, :, :] if mask.ndim > 2 else mask
