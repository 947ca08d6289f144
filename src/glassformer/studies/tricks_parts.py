"""The speed run's tricks as registered parts: an activation, blocks, a head, and a model with values for tokens.

    relu2           y = max(x, 0)²                                                           (So et al. 2021)
    zero_outputs    what a block adds begins at zero, so that the stack begins as the identity
    qk_norm         q ← q / rms(q), k ← k / rms(k) in each head, which bounds the scores     (Henry et al. 2020)
    soft cap        logits ← cap · tanh(logits / cap), which bounds the logits
    values          v ← a · v + b · table[token], a and b of each block: a token hands on a vector of its own

The first three are chosen by name: activation="relu2", block="qk_norm". A block is not told which tokens it reads, and
no setting stands behind the logits; so the last two need a class of models, `SpeedDecoder`.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

from .. import ops
from ..core import registry
from ..core.arrays import Array, Tree, namespace
from ..core.dispatch import located
from ..layers import Attention, Block, Cache, Embedding, Spec, Stack, TokenHead, register_block
from ..layers.embedding import HeadGrads
from ..models import Decoder
from ..models.building import build_head, build_stack

BLOCKS = {"speed": (), "zero_outputs": ("zero",), "qk_norm": ("qk_norm",), "zero_qk": ("zero", "qk_norm")}


def register() -> None:
    """Make configs choose the activation and the blocks."""
    if "relu2" not in registry.own("activation"):
        ops.register_activation("relu2", relu2, relu2_backward)
        for name, tricks in BLOCKS.items():
            register_block(name, dataclass(frozen=True)(type(name, (SpeedBlock,), dict.fromkeys(tricks, True))))


def relu2(x: Array) -> tuple[Array, Array]:
    """y = max(x, 0)²."""
    return x * x * (x > 0), x


def relu2_backward(dy: Array, x: Array) -> Array:
    """dx = dy · 2 max(x, 0)."""
    return dy * 2 * x * (x > 0)


@dataclass(frozen=True)
class SpeedAttention(Attention):
    """Attention with normalized queries and keys, and with values (..., T, K·C) of its tokens among the parameters."""

    qk_norm: bool = False
    values: bool = False

    def specs(self) -> Tree:
        specs = super().specs()
        return {**specs, "value": {**specs["value"], "mix": Spec((2,), mean=0.5)}} if self.values else specs

    @located
    def _heads(self, params: Tree, name: str, x: Array) -> tuple[Array, Tree]:
        y, saved = super()._heads(params, name, x)
        if name == "value" and self.values:
            a, b = params["mix"]
            y = a * y + b * ops.split_heads(params["given"], heads=self.key_heads)[0]
        return _unit(y)[0] if name != "value" and self.qk_norm else y, saved

    @located
    def _heads_backward(self, params: Tree, name: str, saved: Tree, dy: Array) -> tuple[Array, Tree]:
        if not (self.values if name == "value" else self.qk_norm):
            return super()._heads_backward(params, name, saved, dy)
        made, _ = super()._heads(params, name, saved.x)  # computed again: the record keeps what became of it
        if name != "value":
            return super()._heads_backward(params, name, saved, ops.rms_norm_backward(dy, _unit(made)[1])[0])
        # v = a · made + b · given
        a, b = params["mix"]
        given = ops.split_heads(params["given"], heads=self.key_heads)[0]
        dgiven = ops.split_heads_backward(b * dy, None, heads=self.key_heads)
        dx, grads = super()._heads_backward(params, name, saved, a * dy)
        grads["mix"] = namespace(dy).stack([(dy * made).sum(), (dy * given).sum()])
        grads["given"] = dgiven
        return dx, grads


def _unit(x: Array) -> tuple[Array, Any]:
    """Divide each vector by its root mean square."""
    return ops.rms_norm(x, namespace(x).ones(x.shape[-1], dtype=x.real.dtype))


@dataclass(frozen=True)
class SpeedBlock(Block):
    """The plain block, run as it is written; classes derived from it set a trick."""

    zero: ClassVar[bool] = False
    qk_norm: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.attention, SpeedAttention):
            given = {field.name: getattr(self.attention, field.name) for field in fields(Attention)}
            scale: dict[str, Any] = {"output_scale": 0.0} if self.zero else {}
            object.__setattr__(self, "attention", SpeedAttention(**{**given, **scale}, qk_norm=self.qk_norm))
            object.__setattr__(self, "feed_forward", replace(self.feed_forward, **scale))


@dataclass(frozen=True)
class SoftCapHead(TokenHead):
    """logits ← cap · tanh(logits / cap)."""

    cap: float = 30.0

    def forward(self, params: Tree, x: Array, table: Array | None = None) -> tuple[Array, Tree]:
        logits, saved = super().forward(params, x, table)
        share = namespace(logits).tanh(logits / self.cap)
        return self.cap * share, {**saved, "share": share}

    def backward(self, params: Tree, saved: Tree, dy: Array, table: Array | None = None) -> tuple[HeadGrads, Tree]:
        return super().backward(params, saved, dy * (1 - saved["share"] ** 2), table)


@dataclass(frozen=True)
class SpeedDecoder(Decoder):
    """A decoder of speed blocks that may cap its logits and give each token a value, from one table for all blocks."""

    soft_cap: bool = False
    values: bool = False

    @cached_property
    def head(self) -> TokenHead:
        head = build_head(self.config)
        return SoftCapHead(**vars(head)) if self.soft_cap else head

    @cached_property
    def stack(self) -> Stack:
        stack = build_stack(self.config, self.execution, causal=True)
        values: dict[str, Any] = {"values": True} if self.values else {}
        return replace(stack, block=replace(stack.block, attention=replace(stack.block.attention, **values)))

    @cached_property
    def table(self) -> Embedding:
        """Ids to values (..., T, K·C)."""
        return Embedding(self.config.vocab, self.config.key_heads * self.config.channels, std=1.0)

    def specs(self) -> Tree:
        return {**super().specs(), **({"values": self.table.specs()} if self.values else {})}

    def forward(self, params: Tree, tokens: Array, **settings: Any) -> tuple[Array, Tree]:
        params, found = self._given(params, tokens)
        logits, saved = super().forward(params, tokens, **settings)
        return logits, {**saved, **found}

    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        if not self.values:
            return super().backward(params, saved, dlogits)
        grads = super().backward(self._given(params, saved["values"].ids)[0], saved, dlogits)
        # Every block read the same values.
        dgiven = sum(block["attention"]["value"].pop("given") for block in grads["blocks"])
        return {**grads, "values": self.table.backward(params["values"], saved["values"], dgiven)[1]}

    def read(self, params: Tree, tokens: Array, cache: Cache, **settings: Any) -> Array:
        return super().read(self._given(params, tokens)[0], tokens, cache, **settings)

    def _given(self, params: Tree, tokens: Array) -> tuple[Tree, Tree]:
        """Put the tokens' values among the parameters of every attention; return these and the record of the table."""
        if not self.values:
            return params, {}
        given, found = self.table.forward(params["values"], tokens)
        blocks = [dict(block, attention=dict(block["attention"])) for block in params["blocks"]]
        for block in blocks:
            block["attention"]["value"] = {**block["attention"]["value"], "given": given}
        return {name: part for name, part in params.items() if name != "values"} | {"blocks": blocks}, {"values": found}
