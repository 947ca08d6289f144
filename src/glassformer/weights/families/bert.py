"""BERT: post-norm, learned positions and segments, a norm on the embeddings."""

from __future__ import annotations

from typing import Any

from ...config import EncoderConfig, TransformerConfig
from ..family import Family, Tensor, linear, norm
from ..fields import PUBLISHED_ACTIVATION, Fields


def body(config: TransformerConfig, prefix: str, *, skipped: int = 0) -> dict[str, Tensor]:
    """Return the names that BERT and RoBERTa share."""
    names = {
        "embedding.tokens.table": Tensor(f"{prefix}embeddings.word_embeddings.weight"),
        "embedding.positions.table": Tensor(f"{prefix}embeddings.position_embeddings.weight", skipped=skipped),
        "embedding.segments.table": Tensor(f"{prefix}embeddings.token_type_embeddings.weight"),
        **norm("embedding.norm", f"{prefix}embeddings.LayerNorm"),
    }
    for layer in range(config.layers):
        ours, theirs = f"blocks.{layer}", f"{prefix}encoder.layer.{layer}"
        names |= linear(f"{ours}.attention.query", f"{theirs}.attention.self.query")
        names |= linear(f"{ours}.attention.key", f"{theirs}.attention.self.key")
        names |= linear(f"{ours}.attention.value", f"{theirs}.attention.self.value")
        names |= linear(f"{ours}.attention.output", f"{theirs}.attention.output.dense")
        names |= norm(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm")
        names |= linear(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        names |= linear(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        names |= norm(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm")
    return names


def table(config: TransformerConfig) -> dict[str, Tensor]:
    """Return our names to those of BERT."""
    return {
        **body(config, "bert."),
        **linear("head.transform.linear", "cls.predictions.transform.dense"),
        **norm("head.transform.norm", "cls.predictions.transform.LayerNorm"),
        "head.w": Tensor("cls.predictions.decoder.weight", transposed=True),
        "head.b": Tensor("cls.predictions.decoder.bias", twin="cls.predictions.bias"),
    }


def read(fields: Fields) -> dict[str, Any]:
    """Return our settings for those of BERT."""
    fields.only("position_embedding_type", "absolute", None)
    fields.only("is_decoder", False)
    fields.only("add_cross_attention", False)
    return {
        "vocab": fields.size("vocab_size"),
        "width": fields.size("hidden_size"),
        "heads": fields.size("num_attention_heads"),
        "layers": fields.layers("num_hidden_layers"),
        "context": fields.size("max_position_embeddings"),
        "feed_forward": fields.size("intermediate_size"),
        "activation": fields.activation("hidden_act", "gelu"),
        "norm_eps": fields.number("layer_norm_eps", 1e-12),
        "segments": fields.size("type_vocab_size", 2),
        "tied_head": fields.flag("tie_word_embeddings", True),
        "dropout": fields.rate("hidden_dropout_prob", 0.1),
        "attention_dropout": fields.rate("attention_probs_dropout_prob", 0.1),
        "init_std": fields.number("initializer_range", 0.02),
        "norm_position": "post",
        "embedding_norm": True,
    }


def write(config: EncoderConfig) -> dict[str, Any]:
    """Return the fields of BERT for our settings."""
    return {
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "max_position_embeddings": config.context,
        "intermediate_size": config.hidden,
        "hidden_act": PUBLISHED_ACTIVATION[config.activation],
        "layer_norm_eps": config.norm_eps,
        "type_vocab_size": max(config.segments, 1),
        "tie_word_embeddings": config.tied_head,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.weight_dropout,
        "initializer_range": config.init_std or 0.02,
        "pad_token_id": 0,
    }


def pooler(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return what the class without a head has behind the blocks: a layer on the first token, for classifiers."""
    if config.head != "none":
        return {}
    return {"pooler.dense.weight": (config.width, config.width), "pooler.dense.bias": (config.width,)}


BERT = Family(
    name="bert",
    architecture="encoder",
    classes={"BertForMaskedLM": "tokens", "BertForPreTraining": "tokens", "BertModel": "none"},
    prefix="bert.",
    table=table,
    read=read,
    write=write,
    kept=pooler,
    ignored=(
        r"embeddings\.(position_ids|token_type_ids)",
        r"pooler\.dense\.(weight|bias)",
        r"cls\.seq_relationship\.(weight|bias)",
        r"cls\.predictions\.decoder\.weight",
    ),
    renamed=(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
)
