"""BERT: post-norm, learned positions and segments, a norm on the embeddings."""

from __future__ import annotations

from ...config import EncoderConfig
from ..family import Family, Tensor
from ..fields import Fields


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
        "head.b": Tensor("cls.predictions.decoder.bias", twin="cls.predictions.bias"),
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
