"""Multi-head attention: every token gathers from the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from .. import ops
from ..arrays import Array, Tree, check_mask, check_width, namespace
from ..errors import ConfigError
from . import attention_whole
from .cache import KeyValues
from .layer import Layer
from .linear import Linear


class AttentionRecord(NamedTuple):
    """What attention did, from its input to its output."""

    query: Tree
    key: Tree  # None in self-attention, where keys and values read what the queries read
    value: Tree
    rotation: Tree  # cosines and sines that turned queries and keys, or None
    attend: Tree  # q, k, v (after rotation, by head), the weights, and what dropout kept
    output: Tree

    @property
    def weights(self) -> Array:
        """The attention weights (..., H, T, S). Tiled attention keeps none: ask `Attention.weights`."""
        return self.attend.weights


class InputGrads(NamedTuple):
    """Gradients of everything a layer read: its input, the memory it looked at, the bias on its scores."""

    x: Array
    memory: Array | None = None
    bias: Array | None = None

    def after(self, later: InputGrads) -> InputGrads:
        """Return this layer's gradient of x, and the sums for what a later layer read as well: memory and bias."""
        memory = self.memory if later.memory is None else later.memory + self.memory
        bias = self.bias if later.bias is None else later.bias + self.bias
        return InputGrads(self.x, memory, bias)


@dataclass(frozen=True)
class Attention(Layer):
    """Multi-head attention over x (..., T, D) itself or over a memory (..., S, D).

        q = x query,  k = m key,  v = m value       (m the memory, or x; split into heads of C channels)
        y = concat(attention(q, k, v) of each head) output

    kv_heads < heads shares keys and values among groups of heads (1: multi-query attention).
    """

    width: int
    heads: int
    kv_heads: int | None = None
    head_width: int | None = None
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
        """The linear maps by name."""
        inner, shared = self.heads * self.channels, self.key_heads * self.channels
        output_bias = self.bias if self.output_bias is None else self.output_bias
        std = (1 / math.sqrt(inner) if self.std is None else self.std) * self.output_scale
        return {
            "query": Linear(self.width, inner, self.bias, self.std),
            "key": Linear(self.width, shared, self.bias, self.std),
            "value": Linear(self.width, shared, self.bias, self.std),
            "output": Linear(inner, self.width, output_bias, std),
        }

    def specs(self) -> Tree:
        return {name: part.specs() for name, part in self.parts.items()}

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
    ) -> tuple[Array, AttentionRecord]:
        """Attend. `mask` broadcasts to (..., T, S), `bias` to (..., H, T, S); a `key` turns dropout on."""
        check_width(x, self.width)
        if memory is None and bias is None and mask is None and (key is None or self.dropout == 0):
            whole = attention_whole.forward(self, params, x, rotation)
            if whole is not None:
                y, query, turned, attend, output = whole
                return y, AttentionRecord(query, None, None, turned, attend, output)
        seen = x if memory is None else memory
        q, k, v = (
            self.parts[name].forward(params[name], source)
            for name, source in (("query", x), ("key", seen), ("value", seen))
        )
        heads = [split_heads(y, n) for (y, _), n in ((q, self.heads), (k, self.key_heads), (v, self.key_heads))]
        turned = None
        if rotation is not None:
            heads[0], turned = ops.rotary(heads[0], *rotation, pairing=self.pairing)
            heads[1], _ = ops.rotary(heads[1], *rotation, pairing=self.pairing)
        mask = _with_head_axis(mask, heads[0], heads[1])
        mixed, attend = self._attend(heads[0], heads[1], heads[2], bias, mask, key)
        y, output = self.parts["output"].forward(params["output"], merge_heads(mixed))
        own = memory is None
        return y, AttentionRecord(q[1], None if own else k[1], None if own else v[1], turned, attend, output)

    def backward(self, params: Tree, saved: AttentionRecord, dy: Array) -> tuple[InputGrads, Tree]:
        whole = attention_whole.backward(self, params, saved, dy)
        if whole is not None:
            return InputGrads(whole[0]), whole[1]
        grads: dict[str, Tree] = {}
        dmixed, grads["output"] = self.parts["output"].backward(params["output"], saved.output, dy)
        dq, dk, dv, dbias = self._attend_backward(split_heads(dmixed, self.heads), saved.attend)
        if saved.rotation is not None:
            dq = ops.rotary_backward(dq, saved.rotation, pairing=self.pairing)
            dk = ops.rotary_backward(dk, saved.rotation, pairing=self.pairing)
        dx, grads["query"] = self.parts["query"].backward(params["query"], saved.query, merge_heads(dq))
        own = saved.key is None
        read_key, read_value = (saved.query, saved.query) if own else (saved.key, saved.value)
        dseen, grads["key"] = self.parts["key"].backward(params["key"], read_key, merge_heads(dk))
        dvalue, grads["value"] = self.parts["value"].backward(params["value"], read_value, merge_heads(dv))
        dseen = dseen + dvalue
        if own:
            return InputGrads(dx + dseen, None, dbias), grads
        return InputGrads(dx, dseen, dbias), grads

    def weights(self, saved: AttentionRecord) -> Array:
        """Return the attention weights (..., H, T, S), computed again if the forward pass did not keep them."""
        if self.tile is None:
            return saved.weights
        q, k, v, bias, mask, *_ = saved.attend
        return ops.attention(q, k, v, bias, mask=mask, pattern=self.pattern, scale=self.scale)[1].weights

    def read(
        self,
        params: Tree,
        x: Array,
        cache: KeyValues,
        bias: Array | None = None,
        *,
        mask: Array | None = None,
        rotation: tuple[Array, Array] | None = None,
    ) -> Array:
        """Return what `forward` gives for further tokens x (..., T, D), which attend to all tokens in the cache.

        The keys and values of x join the cache; `mask` and `bias` are about all keys that `cache.columns` names.
        """
        allowed = cache.allowed(self.pattern, x.shape[-2])
        q, k, v = (self._heads(params, name, x) for name in ("query", "key", "value"))
        if rotation is not None:
            q, k = (ops.rotary(y, *rotation, pairing=self.pairing)[0] for y in (q, k))
        k, v = cache.append(k, v)
        mask = _with_head_axis(mask, q, k)
        if allowed is not None:
            allowed = namespace(x).asarray(allowed)
            mask = allowed if mask is None else mask & allowed
        return self._output(params, q, k, v, bias, mask)

    def remember(self, params: Tree, memory: Array) -> tuple[Array, Array]:
        """Return the keys and values of a memory, which `recall` attends to."""
        return self._heads(params, "key", memory), self._heads(params, "value", memory)

    def recall(self, params: Tree, x: Array, kept: tuple[Array, Array], *, mask: Array | None = None) -> Array:
        """Return what `forward` gives for x and the memory that `remember` read."""
        q = self._heads(params, "query", x)
        return self._output(params, q, *kept, None, _with_head_axis(mask, q, kept[0]))

    def _heads(self, params: Tree, name: str, x: Array) -> Array:
        heads = self.heads if name == "query" else self.key_heads
        return split_heads(self.parts[name].forward(params[name], x)[0], heads)

    def _output(self, params: Tree, q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None) -> Array:
        mixed, _ = ops.attention(q, k, v, bias, mask=mask, scale=self.scale)
        return self.parts["output"].forward(params["output"], merge_heads(mixed))[0]

    def _attend(
        self, q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None, key: Array | None
    ) -> tuple[Array, Tree]:
        settings: dict[str, Any] = {"pattern": self.pattern, "key": key, "rate": self.dropout, "scale": self.scale}
        if self.tile is not None:
            return ops.attention_tiled(q, k, v, bias, mask=mask, tile=self.tile, **settings)
        y, saved = ops.attention(q, k, v, bias, mask=mask, **settings)
        return y, saved if self.learned_bias else saved._replace(bias=None)

    def _attend_backward(self, dy: Array, saved: Tree) -> tuple[Array, Array, Array, Array | None]:
        settings: dict[str, Any] = {"pattern": self.pattern, "rate": self.dropout, "scale": self.scale}
        if self.tile is None:
            return ops.attention_backward(dy, saved, **settings)
        return ops.attention_tiled_backward(dy, saved, tile=self.tile, **settings)


def split_heads(x: Array, heads: int) -> Array:
    """View (..., T, H·C) as (..., H, T, C)."""
    x = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)
    return namespace(x).swapaxes(x, -3, -2)


def merge_heads(x: Array) -> Array:
    """Put the heads side by side again: (..., H, T, C) to (..., T, H·C)."""
    x = namespace(x).swapaxes(x, -3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _with_head_axis(mask: Array | None, q: Array, k: Array) -> Array | None:
    """Check a mask (..., T, S) and let it serve all heads."""
    if mask is None:
        return None
    check_mask(mask, (*q.shape[:-3], q.shape[-2], k.shape[-2]))
    return mask[..., None, :, :] if mask.ndim > 2 else mask
