"""T5 and T5 v1.1: relative positions, RMS norms, no biases, scores that are not scaled."""

from __future__ import annotations

from typing import Any

from ...config import EncoderDecoderConfig, TransformerConfig
from ..family import Family, Tensor, linear, norm
from ..fields import ACTIVATIONS, PUBLISHED_ACTIVATION, Fields

CONTEXT = 512  # relative positions have no end; it was trained on this length


def table(config: TransformerConfig) -> dict[str, Tensor]:
    """Return our names to those of T5; the first block of a stack holds the biases of all."""
    assert isinstance(config, EncoderDecoderConfig)
    names = {
        "embedding.tokens.table": Tensor("shared.weight"),
        "head.w": Tensor("lm_head.weight", transposed=True),
    }
    for stack, layers in (("encoder", config.encoder_depth), ("decoder", config.layers)):
        names |= norm(f"{stack}.final_norm", f"{stack}.final_layer_norm")
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names[f"{stack}.relative.table"] = Tensor(bias)
        for layer in range(layers):
            names |= _block(f"{stack}.blocks.{layer}", f"{stack}.block.{layer}.layer", config.gated, stack == "decoder")
    return names


def _block(ours: str, theirs: str, gated: bool, cross: bool) -> dict[str, Tensor]:
    sublayers = {"attention": "SelfAttention", "feed_forward": "DenseReluDense"}
    if cross:
        sublayers = {"attention": "SelfAttention", "cross_attention": "EncDecAttention", **sublayers}
    # The cross-attention stands between the two.
    order = [name for name in ("attention", "cross_attention", "feed_forward") if name in sublayers]
    names: dict[str, Tensor] = {}
    for number, name in enumerate(order):
        names |= norm(f"{ours}.{name}_norm", f"{theirs}.{number}.layer_norm")
        parts = {"query": "q", "key": "k", "value": "v", "output": "o"}
        if name == "feed_forward":
            parts = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
        for part, their_part in parts.items():
            names |= linear(f"{ours}.{name}.{part}", f"{theirs}.{number}.{sublayers[name]}.{their_part}")
    return names


def read(fields: Fields) -> dict[str, Any]:
    """Return our settings for those of T5.

    The output is scaled where the head was trained as the transposed embedding; newer configs say so themselves.
    """
    fields.only("is_decoder", False)
    fields.only("is_encoder_decoder", True)
    layers = fields.layers("num_layers")
    tied = fields.flag("tie_word_embeddings", True)
    activation, gated = _activation(fields)
    return {
        "vocab": fields.size("vocab_size"),
        "width": fields.size("d_model"),
        "heads": fields.size("num_heads"),
        "head_width": fields.size("d_kv"),
        "layers": fields.layers("num_decoder_layers", layers),
        "encoder_layers": layers,
        "context": fields.size("n_positions", CONTEXT),
        "feed_forward": fields.size("d_ff"),
        "activation": activation,
        "gated": gated,
        "norm_eps": fields.number("layer_norm_epsilon", 1e-6),
        "relative_buckets": fields.size("relative_attention_num_buckets", 32),
        "relative_distance": fields.size("relative_attention_max_distance", 128),
        "tied_head": tied,
        "head_scale": fields.flag("scale_decoder_outputs", tied),
        "dropout": fields.rate("dropout_rate", 0.1),
        "norm": "rms",
        "positions": "relative",
        "attention_bias": False,
        "feed_forward_bias": False,
        "scale_scores": False,
        "shared_embedding": True,
    }


def _activation(fields: Fields) -> tuple[str, bool]:
    kind = fields.get("feed_forward_proj", "relu")
    if kind == "gated-gelu":  # in T5, this has always meant the form with tanh
        return "gelu_tanh", True
    name = str(kind).removeprefix("gated-")
    if name not in ACTIVATIONS:
        fields.refuse("feed_forward_proj", f"supported: {', '.join(ACTIVATIONS)}, each also with gated- before it")
    return ACTIVATIONS[name], str(kind).startswith("gated-")


def write(config: EncoderDecoderConfig) -> dict[str, Any]:
    """Return the fields of T5 for our settings."""
    name = PUBLISHED_ACTIVATION[config.activation]
    if config.gated:
        name = {"gelu_new": "gated-gelu", "gelu": "gated-gelu_python"}.get(name, f"gated-{name}")
    fields = {
        "vocab_size": config.vocab,
        "d_model": config.width,
        "num_heads": config.heads,
        "d_kv": config.channels,
        "num_layers": config.encoder_depth,
        "num_decoder_layers": config.layers,
        "n_positions": config.context,
        "d_ff": config.hidden,
        "feed_forward_proj": name,
        "layer_norm_epsilon": config.norm_eps,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "tie_word_embeddings": config.tied_head,
        "scale_decoder_outputs": config.head_scale,
        "dropout_rate": config.dropout,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
    }
    return fields


T5 = Family(
    name="t5",
    architecture="encoder-decoder",
    classes={"T5ForConditionalGeneration": "tokens"},
    prefix="",
    table=table,
    read=read,
    write=write,
    ignored=(
        r"(encoder|decoder)\.embed_tokens\.weight",
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        r"lm_head\.weight",
    ),
)
