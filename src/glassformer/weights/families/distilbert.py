"""DistilBERT: BERT without segments, under other names."""

from __future__ import annotations

from typing import Any

from ...config import EncoderConfig, TransformerConfig
from ..family import Family, Tensor, linear, norm
from ..fields import PUBLISHED_ACTIVATION, Fields

EPS = 1e-12  # not in its config


def table(config: TransformerConfig) -> dict[str, Tensor]:
    """Return our names to those of DistilBERT."""
    names = {
        "embedding.tokens.table": Tensor("distilbert.embeddings.word_embeddings.weight"),
        "embedding.positions.table": Tensor("distilbert.embeddings.position_embeddings.weight"),
        **norm("embedding.norm", "distilbert.embeddings.LayerNorm"),
        **linear("head.transform.linear", "vocab_transform"),
        **norm("head.transform.norm", "vocab_layer_norm"),
        "head.w": Tensor("vocab_projector.weight", transposed=True),
        "head.b": Tensor("vocab_projector.bias"),
    }
    for layer in range(config.layers):
        ours, theirs = f"blocks.{layer}", f"distilbert.transformer.layer.{layer}"
        names |= linear(f"{ours}.attention.query", f"{theirs}.attention.q_lin")
        names |= linear(f"{ours}.attention.key", f"{theirs}.attention.k_lin")
        names |= linear(f"{ours}.attention.value", f"{theirs}.attention.v_lin")
        names |= linear(f"{ours}.attention.output", f"{theirs}.attention.out_lin")
        names |= norm(f"{ours}.attention_norm", f"{theirs}.sa_layer_norm")
        names |= linear(f"{ours}.feed_forward.up", f"{theirs}.ffn.lin1")
        names |= linear(f"{ours}.feed_forward.down", f"{theirs}.ffn.lin2")
        names |= norm(f"{ours}.feed_forward_norm", f"{theirs}.output_layer_norm")
    return names


def read(fields: Fields) -> dict[str, Any]:
    """Return our settings for those of DistilBERT; sinusoidal positions are stored as a table all the same."""
    return {
        "vocab": fields.size("vocab_size"),
        "width": fields.size("dim"),
        "heads": fields.size("n_heads"),
        "layers": fields.layers("n_layers"),
        "context": fields.size("max_position_embeddings"),
        "feed_forward": fields.size("hidden_dim"),
        "activation": fields.activation("activation", "gelu"),
        "norm_eps": EPS,
        "tied_head": fields.flag("tie_word_embeddings", True),
        "dropout": fields.rate("dropout", 0.1),
        "attention_dropout": fields.rate("attention_dropout", 0.1),
        "init_std": fields.number("initializer_range", 0.02),
        "norm_position": "post",
        "embedding_norm": True,
    }


def write(config: EncoderConfig) -> dict[str, Any]:
    """Return the fields of DistilBERT for our settings."""
    return {
        "vocab_size": config.vocab,
        "dim": config.width,
        "n_heads": config.heads,
        "n_layers": config.layers,
        "max_position_embeddings": config.context,
        "hidden_dim": config.hidden,
        "activation": PUBLISHED_ACTIVATION[config.activation],
        "tie_word_embeddings": config.tied_head,
        "dropout": config.dropout,
        "attention_dropout": config.weight_dropout,
        "initializer_range": config.init_std or 0.02,
        "pad_token_id": 0,
    }


DISTILBERT = Family(
    name="distilbert",
    architecture="encoder",
    classes={"DistilBertForMaskedLM": "tokens", "DistilBertModel": "none"},
    prefix="distilbert.",
    table=table,
    read=read,
    write=write,
    ignored=(r"embeddings\.position_ids", r"vocab_projector\.weight"),
)
