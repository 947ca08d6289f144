"""The speed run's tricks at our size: what is each worth alone, and what are all together?

The tricks are registered parts: an activation, blocks, a head, and a model with values for tokens.

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

import numpy as np

from .. import ops
from ..core import registry
from ..core.arrays import Array, Tree, namespace
from ..core.dispatch import located
from ..layers import Attention, Block, Cache, Embedding, Spec, Stack, TokenHead, register_block
from ..layers.embedding import HeadGrads
from ..models import Decoder
from ..models.building import build_head, build_stack
from .measures import loss_curve, steps_to
from .study import Figures, Rows, Study

MUON = {"optimizer": "muon", "lr": 0.02, "beta2": 0.95}
REST = {"activation": "relu2", "block": "zero_qk", "tied_head": False, "soft_cap": True, "values": True}
TRICKS: dict[str, dict[str, Any]] = {
    "none": {}, "ReLU²": {"activation": "relu2"}, "zero outputs": {"block": "zero_outputs"},
    "QK-norm": {"block": "qk_norm"}, "untied head": {"tied_head": False}, "soft cap": {"soft_cap": True},
    "value embeddings": {"values": True}, "Muon": MUON, "all": {**REST, **MUON}, "all but Muon": REST,
    "all but untied head": {**REST, **MUON, "tied_head": True},
}  # fmt: skip
LABELS = ("trick", "soft_cap", "values")
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


def grid(quick: bool) -> list[dict[str, Any]]:
    """Return the plain model, each trick alone, and all together."""
    register()
    width, layers, context, steps = (32, 2, 32, 100) if quick else (64, 4, 64, 400)
    common: dict[str, Any] = {"task": "text", "width": width, "heads": width // 16, "layers": layers}
    common |= {"context": context, "batch": 12, "steps": steps, "schedule": "constant", "warmup": 20}
    common |= {"optimizer": "adamw", "lr": 3e-3, "beta2": 0.99, "weight_decay": 0.0}
    common |= {"eval_every": steps // 20, "eval_tokens": 8192}
    plain = {"block": "speed", "activation": "gelu_tanh", "tied_head": True, "soft_cap": False, "values": False}
    return [{"trick": name, **common, **plain, **changes} for name, changes in TRICKS.items()]


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train, and return the held-out losses along the way."""
    register()
    settings = {name: value for name, value in point.items() if name not in LABELS}

    def build(config: Any) -> SpeedDecoder:
        return SpeedDecoder(config, soft_cap=point["soft_cap"], values=point["values"])

    return loss_curve(seed=seed, build=build, **settings)


def compared(rows: Rows) -> tuple[float, dict[str, Array]]:
    """Return the plain model's loss after three quarters of its steps, and the steps to it; infinite: never."""
    plain = [row["losses"] for row in rows.where(trick="none") if not row["diverged"]]
    target = float(np.mean([losses[3 * len(losses) // 4] for losses in plain])) if plain else 0.0
    return target, {name: steps_to(rows.where(trick=name), target) for name in rows.values("trick")}


def derived(rows: Rows) -> Rows:
    """Return the steps to the loss in each run, and the time that they take."""
    target, _ = compared(rows)
    steps = steps_to(rows, target).tolist()
    return Rows(
        {
            "trick": row["trick"],
            "seed": row["seed"],
            "steps_to_loss": one,
            "seconds_to_loss": one * row["step_ms"] / 1e3,
        }
        for row, one in zip(rows, steps, strict=True)
    )


def figures(rows: Rows) -> Figures:
    """Draw each trick's steps as a share of the plain model's, every seed a dot, and the losses."""
    from ..plots import style

    target, taken = compared(rows)
    (figure, (left, right)), theme = style.row(2, 4.5, 4.2), style.colors()
    names = [name for name in taken if name != "none"]
    plain = np.minimum(taken["none"], rows[0]["steps"]).mean()
    for place, name in enumerate(names):
        shares = np.minimum(taken[name], rows[0]["steps"]) / plain
        for marker, some in (("o", np.isfinite(taken[name])), (">", np.isinf(taken[name]))):
            left.plot(shares[some], np.full(some.sum(), place), marker, color=theme.blue, alpha=0.6)
    left.axvline(1.0, color=theme.quiet, lw=0.8)
    left.set(xlabel=f"steps to a loss of {target:.3f}, plain model = 1", yticks=range(len(names)), yticklabels=names)
    left.invert_yaxis()
    for color, name in zip(theme.series, ("none", "Muon", "all", "all but Muon", "all but untied head"), strict=False):
        runs = [row for row in rows.where(trick=name) if not row["diverged"]]
        if runs:
            title = "plain model" if name == "none" else name
            style.band(right, runs[0]["at"], [row["losses"] for row in runs], color, title)
    right.set(xlabel="step", ylabel="held-out loss", ylim=(None, 3.2))
    right.legend()
    words = "steps to the plain model's loss, a dot for each seed, an arrow where it takes more; losses and their range"
    return {"tricks": style.titled(figure, "What the tricks of the speed run are worth", words)}


STUDY = Study(
    name="tricks",
    question="What are the tricks of the NanoGPT speed run worth at our size, each alone and all together?",
    published="The NanoGPT speed run of Jordan et al. (2024) trains GPT-2 small to the same loss several times faster "
    "than at first; its records add these tricks one after the other at 124 million parameters.",
    grid=grid, measure=measure, figures=figures, columns=("trick", "loss", "step_ms"), labels=LABELS, minutes=9,
    answers={"steps_to_loss": "lowest", "seconds_to_loss": "lowest"}, whole={"trick": "none"}, derived=derived,
    caveat="The loss is the plain model's after three quarters of its steps. Leaving out the untied head was added "
    "after a trial with one seed had shown that it harms; no trick but Muon has a learning rate of its own. Times are "
    "those of blocks that run as they are written; kernels make the built-in block faster.",
)  # fmt: skip
