"""BERT and its descendants: post-norm, learned positions and segments, a norm on the embeddings.

DistilBERT has no segments, and other names. RoBERTa's positions count the tokens that are not padding, from 2 on; row 1
belongs to padding, and row 0 is unused.
"""

from dataclasses import replace
from typing import Any

from ...config import EncoderConfig
from ..family import Family, PublishedTensor
from ..fields import Fields

PADDING = 1
SKIPPED = 1


def pooler(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return what the class without a head has behind the blocks: a layer on the first token, for classifiers."""
    if config.head != "none":
        return {}
    return {"pooler.dense.weight": (config.width, config.width), "pooler.dense.bias": (config.width,)}


def read_roberta(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out the unused position and that of padding."""
    if settings["context"] <= SKIPPED + 1:
        fields.refuse("max_position_embeddings", f"the first {SKIPPED + 1} are no positions of tokens")
    if settings["activation"] != "gelu":
        # Its head uses this one whatever the blocks use, and ours uses the same for both.
        fields.only("hidden_act", "gelu")
    return {**settings, "context": settings["context"] - SKIPPED - 1, "padding_id": PADDING}


BERT = Family(
    name="bert",
    architecture="encoder",
    classes={"BertForMaskedLM": "tokens", "BertForPreTraining": "tokens", "BertModel": "none"},
    prefix="bert.",
    table={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.positions": "embeddings.position_embeddings",
        "embedding.segments": "embeddings.token_type_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "blocks.*.attention.query": "encoder.layer.*.attention.self.query",
        "blocks.*.attention.key": "encoder.layer.*.attention.self.key",
        "blocks.*.attention.value": "encoder.layer.*.attention.self.value",
        "blocks.*.attention.output": "encoder.layer.*.attention.output.dense",
        "blocks.*.attention_norm": "encoder.layer.*.attention.output.LayerNorm",
        "blocks.*.feed_forward.up": "encoder.layer.*.intermediate.dense",
        "blocks.*.feed_forward.down": "encoder.layer.*.output.dense",
        "blocks.*.feed_forward_norm": "encoder.layer.*.output.LayerNorm",
        "head.transform.linear": "cls.predictions.transform.dense",
        "head.transform.norm": "cls.predictions.transform.LayerNorm",
        "head": "cls.predictions.decoder",
        "head.b": PublishedTensor("cls.predictions.decoder.bias", twin="cls.predictions.bias"),
    },
    fields={
        "vocab": ("vocab_size", Fields.size),
        "width": ("hidden_size", Fields.size),
        "heads": ("num_attention_heads", Fields.size),
        "layers": ("num_hidden_layers", Fields.layers),
        "context": ("max_position_embeddings", Fields.size),
        "feed_forward": ("intermediate_size", Fields.size),
        "activation": ("hidden_act", Fields.activation, "gelu"),
        "norm_eps": ("layer_norm_eps", Fields.number, 1e-12),
        "segments": ("type_vocab_size", Fields.size, 2),
        "tied_head": ("tie_word_embeddings", Fields.flag, True),
        "dropout": ("hidden_dropout_prob", Fields.rate, 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", Fields.rate, 0.1),
        "init_std": ("initializer_range", Fields.number, 0.02),
    },
    fixed={"norm_position": "post", "embedding_norm": True},
    only=(("position_embedding_type", "absolute", None), ("is_decoder", False), ("add_cross_attention", False)),
    written={"pad_token_id": 0},
    kept=pooler,
    ignored=(
        r"embeddings\.(position_ids|token_type_ids)",
        r"pooler\.dense\.(weight|bias)",
        r"cls\.seq_relationship\.(weight|bias)",
        r"cls\.predictions\.decoder\.weight",
    ),
    renamed=(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
)
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
ROBERTA = replace(
    BERT,
    name="roberta",
    classes={"RobertaForMaskedLM": "tokens", "RobertaModel": "none"},
    prefix="roberta.",
    table={
        **BERT.table,
        "embedding.positions.table": PublishedTensor("embeddings.position_embeddings.weight", skipped=SKIPPED),
        "head.transform.linear": "lm_head.dense",
        "head.transform.norm": "lm_head.layer_norm",
        "head": "lm_head.decoder",
        "head.b": PublishedTensor("lm_head.decoder.bias", twin="lm_head.bias"),
    },
    only=(*BERT.only, ("pad_token_id", PADDING)),
    written={"pad_token_id": PADDING},
    read=read_roberta,
    write=lambda config, fields: {**fields, "max_position_embeddings": config.context + SKIPPED + 1},
    ignored=(*BERT.ignored[:2], r"lm_head\.decoder\.weight"),
)
