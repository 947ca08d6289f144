"""Each whole model in every configuration under which the gradient of its loss is proved, and LoRA's adapters.

Sequences repeat tokens, targets are partly ignored, masks hide padding, and parameters are far from their first values.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, RotaryScaling, TransformerConfig
from ..core import registry
from ..core.execution import Execution, separated
from ..core.tree import tree_map
from ..models import PRESETS, Batch, build
from ..ops import IGNORE
from ..training.trainable import Adapted, LoRA
from .case import ModelCase, scattered

SIZES: dict[str, Any] = {"vocab": 9, "width": 8, "heads": 4, "layers": 2, "context": 8, "feed_forward": 6}

ACTIVATION = "gelu_tanh"
"""Of all models that are not about another: that of the models that tasks train, and quick to compile."""

TOKENS = np.array([[1, 4, 1, 0, 7], [1, 1, 8, 3, 3]])
TARGETS = np.array([[4, 1, IGNORE, 7, IGNORE], [1, 8, 3, 3, 2]])
MASK = np.array([[True, True, True, True, False], [True] * 5])
SOURCE = np.array([[5, 2, 5, 5], [6, 6, 0, 0]])
SOURCE_MASK = np.array([[True] * 4, [True, True, False, False]])
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]])
SEQUENCES: dict[str, Any] = {"tokens": TOKENS, "targets": TARGETS, "mask": MASK}


def model_cases() -> list[ModelCase]:
    """Return all cases of all models, made afresh."""
    return [case for source in (encoder_cases, decoder_cases, encoder_decoder_cases, own_cases) for case in source()]


POSITIONS: dict[str, dict[str, Any]] = {
    "learned": {},
    "sinusoidal": {"positions": "sinusoidal"},
    # Two heads have four channels each: with fewer, neither the pairing nor the base would matter.
    "rotary": {"positions": "rotary", "heads": 2},
    "rotary, interleaved": {"positions": "rotary", "heads": 2, "rotary_pairing": "interleaved", "rotary_base": 50.0},
    "rotary, in part": {"positions": "rotary", "heads": 2, "rotary_channels": 2},
    "rotary, stretched": {"positions": "rotary", "heads": 2, "rotary_scaling": RotaryScaling(4.0, 1.0, 3.0, 8)},
    "ALiBi": {"positions": "alibi"},
    "relative": {"positions": "relative", "relative_buckets": 8, "relative_distance": 6},
    "none": {"positions": "none"},
}
PARTS: dict[str, dict[str, dict[str, Any]]] = {
    "positions": POSITIONS,
    "norms": {
        "rms": {"norm": "rms"},
        "no shift": {"norm_bias": False, "norm_eps": 1e-2},
        "no final norm": {"final_norm": False},
        "none": {"norm": "none"},
        "post": {"norm_position": "post"},
        "post, rms, final norm": {"norm_position": "post", "norm": "rms", "final_norm": True},
    },
    "blocks": {
        "parallel": {"block": "parallel"},
        "attention only": {"block": "attention_only"},
        "attention only, no norms": {"block": "attention_only", "norm": "none", "head_width": 3},
        "no residual": {"block": "no_residual"},
    },
    "attention": {
        "grouped queries": {"kv_heads": 2},
        "multi-query, own head width": {"kv_heads": 1, "head_width": 3},
        "no biases": {"attention_bias": False},
        "no output bias": {"output_bias": False},
        "output bias alone": {"attention_bias": False, "output_bias": True},
        "no scale": {"scale_scores": False},
        "window": {"window": 2},
        "stride": {"stride": 2},
        "tiled": {"attention_tile": 3},
        "tiled, window, ALiBi": {"attention_tile": 3, "window": 3, "positions": "alibi", "kv_heads": 2},
        "tiled, relative": {"attention_tile": 3, **POSITIONS["relative"]},
    },
    "head": {
        "free": {"tied_head": False},
        "free, bias": {"tied_head": False, "head_bias": True},
        "scaled, bias": {"head_scale": True, "head_bias": True},
        "embedding scaled and normalized": {"embedding_scale": True, "embedding_norm": True},
    },
}


def _manner(name: str, **own: Any) -> dict[str, Any]:
    """Return what makes the models of a preset what they are, but for their sizes."""
    sizes = (*SIZES, "architecture", "head_width", "init_std", "dropout")
    return {key: value for key, value in PRESETS[name].items() if key not in sizes} | own


FAMILIES: dict[str, dict[str, Any]] = {
    "GPT-2": _manner("gpt2"),
    "Llama": _manner("llama-2-7b", kv_heads=2),
    "BERT": _manner("bert-base", activation="gelu"),
    "original": _manner("transformer-base"),
    "T5": _manner("t5-small", **POSITIONS["relative"]),
}


def encoder_cases() -> Iterator[ModelCase]:
    """Encoders: every pooling, a head for tokens, no head."""
    for pooling in ("mean", "cls", "first"):
        yield _encoder(f"encoder ({pooling})", pooling=pooling)
        yield _encoder(f"encoder ({pooling}), no mask", {"mask": None}, pooling=pooling)
        yield _encoder(f"encoder ({pooling}), unbatched", _only(0, targets=np.array(2)), pooling=pooling)
        yield _encoder(f"encoder ({pooling}), no example", _no_example(targets=np.zeros(0, int)), pooling=pooling)
    yield _encoder("encoder (mean), normed", pooled_norm=True)
    for pooling in ("mean", "first"):
        yield _encoder(f"encoder ({pooling}), a layer", pooling=pooling, pooled_activation="gelu")
    for tied in (True, False):
        yield _filler(f"encoder (tokens), {'tied' if tied else 'free'}", tied_head=tied)
    yield _filler("encoder (tokens), head bias, scaled", head_bias=True, head_scale=True, activation="silu")
    yield _filler("encoder (tokens), one token", _first_token() | {"segments": SEGMENTS[:, :1]}, segments=2)
    pair, bert = {"segments": SEGMENTS}, FAMILIES["BERT"]
    yield _filler("encoder (BERT)", pair, **bert)
    yield _filler("encoder (RoBERTa)", pair, **bert, padding_id=1)
    yield _filler("encoder (BERT), dropout", pair, {"key": ops.new_key(3)}, **bert, dropout=0.2)
    for what, settings in POSITIONS.items():
        yield _encoder(f"encoder (positions), {what}", **settings)
    yield _encoder("encoder (positions), relative, cls", pooling="cls", **POSITIONS["relative"])
    yield _encoder("encoder (blocks), parallel", block="parallel")
    yield _encoder("encoder (vectors)", {"targets": None}, head="none", classes=None, norm_position="post")
    yield _encoder("encoder (attention), window, tiled", window=2, attention_tile=3)
    loss = {"key": ops.new_key(8), "smoothing": 0.1, "class_weights": np.array([0.5, 2.0, 1.0])}
    yield _encoder("encoder (dropout), cls, smoothing, class weights", loss=loss, pooling="cls", dropout=0.3)


def decoder_cases() -> Iterator[ModelCase]:
    """Decoders: every position scheme, norm, activation, kind of attention and head."""
    yield _decoder("decoder")
    yield _decoder("decoder, no mask", {"mask": None})
    yield _decoder("decoder, one token", _first_token())
    yield _decoder("decoder, unbatched", _only(0))
    yield _decoder("decoder, two batch axes", {name: x[:, None] for name, x in SEQUENCES.items()})
    yield _decoder("decoder, no example", _no_example())
    yield _decoder("decoder, every target ignored", {"targets": np.full_like(TARGETS, IGNORE)})
    for row, parts in PARTS.items():
        for what, settings in parts.items():
            yield _decoder(f"decoder ({row}), {what}", **settings)
    yield _decoder("decoder (blocks), feed-forward only", block="feed_forward_only")
    for activation in ops.ACTIVATIONS:
        for gated in (False, True):
            what = f"decoder (feed-forward), {activation}{', gated' * gated}"
            yield _decoder(what, activation=activation, gated=gated, feed_forward_bias=not gated, layers=1)
    for rate in ("dropout", "attention_dropout", "embedding_dropout"):
        settings = {rate: 0.3}
        yield _decoder(f"decoder (dropout), {rate}", loss={"key": ops.new_key(1)}, **settings)
    yield _decoder("decoder (dropout), tiled", loss={"key": ops.new_key(1)}, dropout=0.2, attention_tile=3)
    yield _decoder("decoder (loss), smoothing", loss={"smoothing": 0.1})
    weights = {"smoothing": 0.2, "class_weights": np.linspace(0.2, 2, 9)}
    yield _decoder("decoder (loss), smoothing, class weights", loss=weights)
    for family in ("GPT-2", "Llama"):
        yield _decoder(f"decoder ({family})", **FAMILIES[family])


def encoder_decoder_cases() -> Iterator[ModelCase]:
    """Encoder-decoders: the same, and what two sequences add."""
    yield _seq2seq("encoder-decoder")
    yield _seq2seq("encoder-decoder, no masks", {"mask": None, "source_mask": None})
    yield _seq2seq("encoder-decoder, one token", _first_token() | {"source": SOURCE[:, :1], "source_mask": None})
    yield _seq2seq("encoder-decoder, unbatched", _only(1) | {"source": SOURCE[1], "source_mask": SOURCE_MASK[1]})
    yield _seq2seq("encoder-decoder, no example", _no_example() | {"source": SOURCE[:0], "source_mask": None})
    yield _seq2seq("encoder-decoder, unequal depth, other source", encoder_layers=1, source_vocab=7)
    for row in ("positions", "norms", "blocks", "attention"):
        for what, settings in PARTS[row].items():
            yield _seq2seq(f"encoder-decoder ({row}), {what}", **settings)
    yield _seq2seq("encoder-decoder (embeddings), tied", tied_head=True)
    yield _seq2seq("encoder-decoder (embeddings), shared", shared_embedding=True)
    both: dict[str, Any] = dict.fromkeys(("tied_head", "shared_embedding", "embedding_scale", "embedding_norm"), True)
    yield _seq2seq("encoder-decoder (embeddings), tied and shared", **both)
    loss = {"key": ops.new_key(2), "smoothing": 0.1}
    yield _seq2seq("encoder-decoder (dropout)", loss=loss, dropout=0.2)
    yield _seq2seq("encoder-decoder (dropout), tiled", loss=loss, dropout=0.2, attention_tile=3)
    for family in ("original", "T5"):
        yield _seq2seq(f"encoder-decoder ({family})", **FAMILIES[family])


def own_cases() -> Iterator[ModelCase]:
    """Decoders with registered blocks, positions, activations and norms."""
    for family in ("activation", "norm", "positions", "block"):
        for name in registry.own(family):
            settings: dict[str, Any] = {family: name}
            yield _decoder(f"decoder ({family} {name})", heads=2, **settings)


def _case(
    config: type[TransformerConfig],
    batch: dict[str, Any],
    own: dict[str, Any],
    name: str,
    parts: dict[str, Any] | None = None,
    loss: dict[str, Any] | None = None,
    **settings: Any,
) -> ModelCase:
    """Return a model of settings of its config and of its execution, and the batch with some parts replaced."""
    choices, how = separated({"activation": ACTIVATION, **SIZES, **own, **settings})
    model = build(config(**choices), Execution(**how))
    params = scattered(model, np.random.default_rng(2))
    return ModelCase(name, model, params, Batch(**batch | (parts or {})), loss or {})


_encoder = partial(_case, EncoderConfig, SEQUENCES | {"targets": np.array([2, 0])}, {"classes": 3})
_filler = partial(_case, EncoderConfig, SEQUENCES, {"head": "tokens"})
_decoder = partial(_case, DecoderConfig, SEQUENCES, {})
_seq2seq = partial(_case, EncoderDecoderConfig, SEQUENCES | {"source": SOURCE, "source_mask": SOURCE_MASK}, {})


def _only(row: int, **parts: Any) -> dict[str, Any]:
    """Return one sequence without a batch axis."""
    return {name: x[row] for name, x in SEQUENCES.items()} | parts


def _first_token() -> dict[str, Any]:
    return {"tokens": TOKENS[:, :1], "targets": TARGETS[:, :1], "mask": None}


def _no_example(**parts: Any) -> dict[str, Any]:
    return {name: x[:0] for name, x in SEQUENCES.items()} | parts


def lora_cases() -> list[ModelCase]:
    """Return adapters beside queries and values, and beside every matrix, of one model of each architecture."""
    adapters = {"queries and values": LoRA(rank=2, alpha=3.0), "all matrices": LoRA(rank=3, targets=("*.w", "*.table"))}
    models: dict[str, ModelCase] = {}
    for case in model_cases():
        models.setdefault(case.model.config.architecture, case)
    cases = []
    for case in models.values():
        for what, lora in adapters.items():
            rng = np.random.default_rng(0)
            drawn = lora.init(case.params, rng, np.float64)
            point = tree_map(lambda x, rng=rng: x + 0.3 * rng.standard_normal(x.shape), drawn)
            name, own = f"LoRA, {case.name}, {what}", Adapted(case.params, lora)
            cases.append(replace(case, name=name, params=point, parametrization=own))
    return cases
