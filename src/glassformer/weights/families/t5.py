"""T5 and T5 v1.1: relative positions, RMS norms, no biases, scores that are not scaled."""

from typing import Any

from ...config import EncoderDecoderConfig
from ..family import Family, Names
from ..fields import ACTIVATIONS, PUBLISHED_ACTIVATION, Fields

CONTEXT = 512  # relative positions have no end; it was trained on this length

_SUBLAYERS = {"attention": "SelfAttention", "cross_attention": "EncDecAttention", "feed_forward": "DenseReluDense"}
_ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}
_FEED_FORWARD = {"gate": "wi_0", "up": "wi_1", "down": "wo"}


def _stack(stack: str, *sublayers: str) -> Names:
    """Return the names of a stack; its first block holds the biases of all."""
    names: Names = {
        f"{stack}.final_norm": f"{stack}.final_layer_norm",
        f"{stack}.relative": f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias",
    }
    for number, name in enumerate(sublayers):
        ours, place = f"{stack}.blocks.*.{name}", f"{stack}.block.*.layer.{number}"
        parts = _FEED_FORWARD if name == "feed_forward" else _ATTENTION
        names |= {f"{ours}.{part}": f"{place}.{_SUBLAYERS[name]}.{letter}" for part, letter in parts.items()}
        names[f"{ours}_norm"] = f"{place}.layer_norm"
    return names


def read(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the activation, and whether it is gated."""
    projection = fields.get("feed_forward_proj", "relu")
    name = str(projection).removeprefix("gated-")
    if name not in ACTIVATIONS:
        fields.refuse("feed_forward_proj", f"supported: {', '.join(ACTIVATIONS)}, each also with gated- before it")
    # In T5, gated-gelu has always meant the form with tanh.
    activation = "gelu_tanh" if projection == "gated-gelu" else ACTIVATIONS[name]
    return {**settings, "activation": activation, "gated": str(projection).startswith("gated-")}


def write(config: EncoderDecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the activation."""
    name = PUBLISHED_ACTIVATION[config.activation]
    if config.gated:
        name = {"gelu_new": "gated-gelu", "gelu": "gated-gelu_python"}.get(name, f"gated-{name}")
    return {**fields, "feed_forward_proj": name}


T5 = Family(
    name="t5",
    architecture="encoder-decoder",
    classes={"T5ForConditionalGeneration": "tokens"},
    prefix="",
    table={
        "embedding.tokens": "shared",
        "head": "lm_head",
        **_stack("encoder", "attention", "feed_forward"),
        **_stack("decoder", *_SUBLAYERS),
    },
    ungated={
        "encoder.blocks.*.feed_forward.up": "encoder.block.*.layer.1.DenseReluDense.wi",
        "decoder.blocks.*.feed_forward.up": "decoder.block.*.layer.2.DenseReluDense.wi",
    },
    fields={
        "vocab": ("vocab_size", Fields.size),
        "width": ("d_model", Fields.size),
        "heads": ("num_heads", Fields.size),
        "head_width": ("d_kv", Fields.size),
        "layers": ("num_decoder_layers", Fields.layers, lambda fields: fields.layers("num_layers")),
        "encoder_layers": ("num_layers", Fields.layers),
        "context": ("n_positions", Fields.size, CONTEXT),
        "feed_forward": ("d_ff", Fields.size),
        "norm_eps": ("layer_norm_epsilon", Fields.number, 1e-6),
        "relative_buckets": ("relative_attention_num_buckets", Fields.size, 32),
        "relative_distance": ("relative_attention_max_distance", Fields.size, 128),
        "tied_head": ("tie_word_embeddings", Fields.flag, True),
        # Scaled where the head was trained as the transposed embedding; newer configs say so themselves.
        "head_scale": ("scale_decoder_outputs", Fields.flag, lambda fields: fields.flag("tie_word_embeddings", True)),
        "dropout": ("dropout_rate", Fields.rate, 0.1),
    },
    fixed={
        "norm": "rms",
        "positions": "relative",
        "attention_bias": False,
        "feed_forward_bias": False,
        "scale_scores": False,
        "shared_embedding": True,
    },
    only=(("is_decoder", False), ("is_encoder_decoder", True)),
    written={"is_encoder_decoder": True, "pad_token_id": 0},
    read=read,
    write=write,
    ignored=(
        r"(encoder|decoder)\.embed_tokens\.weight",
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        r"lm_head\.weight",
    ),
)
