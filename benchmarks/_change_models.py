"""Small random models of all families that write, for `changes.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import glassformer as gf
from glassformer.core.tree import tree_map
from glassformer.generation.storage import stored
from glassformer.interpret import watch
from glassformer.interpret.names import axes_of
from glassformer.layers import Attention, Block, FeedForward, Layer, Spec
from glassformer.layers.position import AlibiPositions, Positions
from glassformer.models import Batch
from glassformer.text import CharTokenizer
from glassformer.training.trainable import LoRA

LETTERS = "abcdefghijk"
SIZES = {"width": 8, "heads": 2, "layers": 2, "context": 12, "feed_forward": 12, "vocab": len(LETTERS)}
LLAMA = {"norm": "rms", "positions": "rotary", "gated": True, "activation": "silu", "attention_bias": False}
T5 = {"norm": "rms", "positions": "relative", "relative_buckets": 8, "relative_distance": 16, "scale_scores": False}
BOTH = {"encoder_layers": 1}

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": {},
    "gpt, 3 blocks, own head": {"layers": 3, "tied_head": False, "head_bias": True},
    "llama": {**LLAMA, "kv_heads": 1, "tied_head": False, "feed_forward_bias": False},
    "grouped queries": {**LLAMA, "heads": 4, "kv_heads": 2, "rotary_pairing": "interleaved"},
    "mistral": {**LLAMA, "kv_heads": 1, "window": 4},
    "post-norm": {"norm_position": "post", "positions": "sinusoidal", "activation": "relu", "embedding_scale": True},
    "post-norm, final norm": {"norm_position": "post", "final_norm": True, "embedding_norm": True},
    "parallel": {"block": "parallel", "positions": "rotary", "rotary_channels": 2, "tied_head": False},
    "alibi": {"positions": "alibi", "norm_bias": False},
    "alibi, window": {"positions": "alibi", "window": 3, "norm_position": "post"},
    "relative": {**T5, "head_scale": True},
    "sparse": {"window": 2, "stride": 3},
    "no positions": {"positions": "none", "head_width": 6},
    "attention only": {"block": "attention_only", "norm": "none"},
    "feed-forward only": {"block": "feed_forward_only"},
    "no residual": {"block": "no_residual", "norm_position": "post"},
    "one block": {"layers": 1, "positions": "rotary", "start": True},
    "gpt, start token": {"start": True, "activation": "gelu_tanh"},
    "tiled": {"tile": 2},
    "own block": {"block": "campaign_gated"},
    "own norm": {"norm": "campaign_scale"},
    "own attention and feed-forward": {"block": "campaign_own_layers", "positions": "rotary"},
    "own positions": {"positions": "campaign_near"},
    "own positions by tokens": {"positions": "campaign_since"},
    "int8": {**LLAMA, "kv_heads": 1, "stored": "int8"},
    "int4": {"stored": "int4", "layers": 1},
    "float16": {"stored": "float16", "positions": "alibi"},
    "adapters": {"adapters": True},
    "encoder-decoder": {**BOTH},
    "encoder-decoder, post-norm": {
        **BOTH, "norm_position": "post", "positions": "sinusoidal", "shared_embedding": True, "tied_head": True,
    },
    "t5": {**BOTH, **T5, "shared_embedding": True, "tied_head": True, "head_scale": True},
    "encoder-decoder, window": {**BOTH, "window": 3, "positions": "rotary", "source_vocab": 9, "kv_heads": 1},
    "encoder-decoder, own block": {**BOTH, "block": "campaign_gated", "stored": "int8"},
}  # fmt: skip
"""Settings of a config, and `start`, `tile`, `stored` and `adapters`."""


@dataclass(frozen=True)
class Subject:
    """A model that writes, and the same in float64 for the judge.

    trained    writes in float32, or as its weights are stored
    exact      the same model with parameters in float64
    run        of that on two examples
    names      of its values
    maps       those of them that have keys
    params     names of its parameters
    """

    family: str
    trained: gf.TrainedModel
    exact: gf.TrainedModel
    run: Any
    names: list[str]
    maps: list[str]
    params: list[str]

    @property
    def has_source(self) -> bool:
        return self.exact.config.architecture == "encoder-decoder"

    def ids(self, rng: np.random.Generator, length: int, *, of_source: bool = False) -> np.ndarray:
        size = self.exact.config.source_size if of_source else self.exact.config.vocab
        return rng.integers(0, size, length)

    def batch(self, ids: Any, source: Any = None) -> Batch:
        return Batch(np.atleast_2d(ids), source=None if source is None else np.atleast_2d(source))


@cache
def subject_of(number: int, seed: int) -> Subject:
    """Return one model, whose parameters follow from the seed."""
    family = list(FAMILIES)[number % len(FAMILIES)]
    settings = {**SIZES, **FAMILIES[family]}
    start, tile, kept, adapters = (settings.pop(name, None) for name in ("start", "tile", "stored", "adapters"))
    own = gf.EncoderDecoderConfig if "encoder_layers" in settings else gf.DecoderConfig
    model = gf.build(own(**settings), gf.Execution(tile=tile))
    rng = np.random.default_rng((seed, number))
    drawn = tree_map(lambda x: x + 0.5 * rng.standard_normal(x.shape), model.init(seed, np.float64))
    written = tree_map(lambda x: x.astype(np.float32), drawn)
    if adapters:
        lora = LoRA(rank=2, alpha=4.0)
        pairs = tree_map(lambda x: rng.standard_normal(x.shape).astype(np.float32), lora.init(written))
        written = lora.merge(written, pairs)
    written = stored(written, kept) if kept else written
    exact = tree_map(lambda x: np.asarray(getattr(x, "dequantize", lambda: x)(), np.float64), written)
    of_source = own is gf.EncoderDecoderConfig
    letters = CharTokenizer(LETTERS)
    sources = CharTokenizer(LETTERS[: model.config.source_size]) if of_source else letters
    fields: dict[str, Any] = {"tokenizer": sources, "target_tokenizer": letters if of_source else None}
    fields["start_id"] = 1 if start or of_source else None
    trained = gf.TrainedModel(model, written, **fields)
    source = rng.integers(0, sources.size, (2, 5)) if of_source else None
    run = watch(model, exact, Batch(rng.integers(0, len(LETTERS), (2, 6)), source=source))
    names = list(run)
    maps = [name for name in names if "key" in axes_of(name, run[name].ndim)]
    return Subject(
        family, trained, replace(trained, params=exact, built=model), run, names, maps, list(gf.tree.flatten(exact))
    )


# --- own parts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScaleNorm(Layer):
    """y = gamma · x / √(Σ x² + eps)."""

    width: int
    eps: float = 1e-5

    def specs(self) -> Any:
        return {"gamma": Spec((1,), mean=1.0)}

    def forward(self, params: Any, x: Any) -> Any:
        r = 1 / ((x * x).sum(axis=-1, keepdims=True) + self.eps) ** 0.5
        return params["gamma"] * x * r, {"x": x, "r": r}


@dataclass(frozen=True)
class Gated(Block):
    """x + gate · (block(x) − x)."""

    def specs(self) -> Any:
        return {**super().specs(), "gate": Spec((1,), mean=0.5)}

    def forward(self, params: Any, x: Any, **given: Any) -> Any:
        y, saved = super().forward(params, x, **given)
        return x + params["gate"] * (y - x), {"inside": saved, "step": y - x}


class LouderAttention(Attention):
    """1.5 times what attention adds."""

    def forward(self, *arguments: Any, **settings: Any) -> Any:
        y, saved = super().forward(*arguments, **settings)
        return 1.5 * y, saved


class LouderFeedForward(FeedForward):
    """1.5 times what a feed-forward layer adds."""

    def forward(self, params: Any, x: Any) -> Any:
        y, saved = super().forward(params, x)
        return 1.5 * y, saved


@dataclass(frozen=True)
class OwnLayers(Block):
    """A block made of subclasses of layers."""

    def __post_init__(self) -> None:
        for name, kind in (("attention", LouderAttention), ("feed_forward", LouderFeedForward)):
            layer = getattr(self, name)
            own = kind(**{field: getattr(layer, field) for field in layer.__dataclass_fields__})
            object.__setattr__(self, name, own)
        super().__post_init__()


class Near(Positions):
    """Scores fall by half for each token in between."""

    def forward(self, params: Any, rows: Any, columns: Any) -> Any:
        return -0.5 * abs(rows[:, None] - columns[None]) * np.ones((2, 1, 1)), None


class Since(AlibiPositions):
    """Learned vectors by how many tokens lie behind the last "a"."""

    vectors = "learned"

    def places(self, tokens: Any) -> Any:
        each = np.broadcast_to(np.arange(tokens.shape[-1]), tokens.shape)
        return each - np.maximum.accumulate(np.where(np.asarray(tokens) == 0, each, 0), axis=-1)


def _no_backward(kind: type) -> None:
    """Nothing is trained here."""
    if "backward" not in vars(kind):
        kind.backward = lambda self, *arguments: None  # type: ignore[attr-defined]


for _kind in (ScaleNorm, Gated):
    _no_backward(_kind)
gf.register_norm("campaign_scale", ScaleNorm)
gf.register_block("campaign_gated", Gated)
gf.register_block("campaign_own_layers", OwnLayers)
gf.register_positions("campaign_near", lambda config, *, bidirectional: Near())
gf.register_positions("campaign_since", lambda config, *, bidirectional: Since(config.heads))
