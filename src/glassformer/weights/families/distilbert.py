"""DistilBERT: BERT without segments, under other names."""

from __future__ import annotations

from ..family import Family
from ..fields import Fields

DISTILBERT = Family(
    name="distilbert",
    architecture="encoder",
    classes={"DistilBertForMaskedLM": "tokens", "DistilBertModel": "none"},
    prefix="distilbert.",
    table={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.positions": "embeddings.position_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "blocks.*.attention.query": "transformer.layer.*.attention.q_lin",
        "blocks.*.attention.key": "transformer.layer.*.attention.k_lin",
        "blocks.*.attention.value": "transformer.layer.*.attention.v_lin",
        "blocks.*.attention.output": "transformer.layer.*.attention.out_lin",
        "blocks.*.attention_norm": "transformer.layer.*.sa_layer_norm",
        "blocks.*.feed_forward.up": "transformer.layer.*.ffn.lin1",
        "blocks.*.feed_forward.down": "transformer.layer.*.ffn.lin2",
        "blocks.*.feed_forward_norm": "transformer.layer.*.output_layer_norm",
        "head.transform.linear": "vocab_transform",
        "head.transform.norm": "vocab_layer_norm",
        "head": "vocab_projector",
    },
    fields={
        "vocab": ("vocab_size", Fields.size),
        "width": ("dim", Fields.size),
        "heads": ("n_heads", Fields.size),
        "layers": ("n_layers", Fields.layers),
        "context": ("max_position_embeddings", Fields.size),
        "feed_forward": ("hidden_dim", Fields.size),
        "activation": ("activation", Fields.activation, "gelu"),
        "tied_head": ("tie_word_embeddings", Fields.flag, True),
        "dropout": ("dropout", Fields.rate, 0.1),
        "attention_dropout": ("attention_dropout", Fields.rate, 0.1),
        "init_std": ("initializer_range", Fields.number, 0.02),
    },
    # Sinusoidal positions are stored as a table all the same, and the epsilon of its norms is not in its config.
    fixed={"norm_position": "post", "embedding_norm": True, "norm_eps": 1e-12},
    written={"pad_token_id": 0},
    ignored=(r"embeddings\.position_ids", r"vocab_projector\.weight"),
)
