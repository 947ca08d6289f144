"""The families of published encoders and encoder-decoders, by their `model_type`; `FAMILIES` has the decoders too.

bert, distilbert         post-norm, learned positions, a norm on the embeddings; bert has segments
roberta                  its positions count the tokens that are not padding, from 2 on: row 1 is padding's
eurobert                 an encoder made of llama's blocks: our own classifiers of texts are exported as this
t5                       relative positions, RMS norms, no biases, scores that are not scaled
"""

from dataclasses import replace
from typing import Any

from ..config import EncoderConfig, EncoderDecoderConfig
from .decoder_families import GPT2, GPT_NEOX, LLAMA, MISTRAL, QWEN2, read_llama, write_llama
from .family import FIELDS, Family, Foreign, Names, block_names
from .fields import ACTIVATIONS, PUBLISHED_ACTIVATION, Fields

PADDING = SKIPPED = 1


def pooler(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return what the class without a head has behind the blocks: a layer on the first token, for classifiers."""
    shapes = {"pooler.dense.weight": (config.width, config.width), "pooler.dense.bias": (config.width,)}
    return shapes if config.head == "none" else {}


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
        **block_names(
            "encoder.layer.*",
            "attention.output.LayerNorm attention.self.query attention.self.key attention.self.value "
            "attention.output.dense",
            "output.LayerNorm intermediate.dense output.dense",
        ),
        "head.transform.linear": "cls.predictions.transform.dense",
        "head.transform.norm": "cls.predictions.transform.LayerNorm",
        "head": "cls.predictions.decoder",
        "head.b": Foreign("cls.predictions.decoder.bias", twin="cls.predictions.bias"),
    },
    fields={
        **FIELDS,
        "norm_eps": ("layer_norm_eps", Fields.number, 1e-12),
        "segments": ("type_vocab_size", Fields.size, 2),
        "dropout": ("hidden_dropout_prob", Fields.rate, 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", Fields.rate, 0.1),
    },
    fixed={"norm_position": "post", "embedding_norm": True},
    only=(("position_embedding_type", "absolute", None), ("is_decoder", False), ("add_cross_attention", False)),
    written={"pad_token_id": 0},
    kept=pooler,
    ignored=(
        r"embeddings\.(position_ids|token_type_ids)",
        r"pooler\.dense\.(weight|bias)",
        r"cls\.(seq_relationship\.(weight|bias)|predictions\.decoder\.weight)",
    ),
    renamed=(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
)


def read_distilbert(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with what its head for classes reads, and how it bends that."""
    classified = {"pooling": "first", "pooled_activation": "relu"} if settings["head"] == "classes" else {}
    return {**settings, **classified}


DISTILBERT = Family(
    name="distilbert",
    architecture="encoder",
    classes={
        "DistilBertForMaskedLM": "tokens",
        "DistilBertForSequenceClassification": "classes",
        "DistilBertModel": "none",
    },
    prefix="distilbert.",
    table={
        "embedding.tokens": "embeddings.word_embeddings",
        "embedding.positions": "embeddings.position_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        **block_names(
            "transformer.layer.*",
            "sa_layer_norm attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
            "output_layer_norm ffn.lin1 ffn.lin2",
        ),
        "head.transform.linear": "vocab_transform",
        "head.transform.norm": "vocab_layer_norm",
        "head": "vocab_projector",
        "pooled_linear": "pre_classifier",
        "classifier": "classifier",
    },
    fields={
        **FIELDS,
        "width": ("dim", Fields.size),
        "heads": ("n_heads", Fields.size),
        "layers": ("n_layers", Fields.layers),
        "feed_forward": ("hidden_dim", Fields.size),
        "activation": ("activation", Fields.activation, "gelu"),
        "dropout": ("dropout", Fields.rate, 0.1),
        "attention_dropout": ("attention_dropout", Fields.rate, 0.1),
    },
    # Sinusoidal positions are stored as a table all the same, and the epsilon of its norms is not in its config.
    fixed={"norm_position": "post", "embedding_norm": True, "norm_eps": 1e-12},
    written={"pad_token_id": 0},
    read=read_distilbert,
    ignored=(r"embeddings\.position_ids", r"vocab_projector\.weight"),
)
ROBERTA = replace(
    BERT,
    name="roberta",
    classes={"RobertaForMaskedLM": "tokens", "RobertaModel": "none"},
    prefix="roberta.",
    table={
        **BERT.table,
        "embedding.positions.table": Foreign("embeddings.position_embeddings.weight", skipped=SKIPPED),
        "head.transform.linear": "lm_head.dense",
        "head.transform.norm": "lm_head.layer_norm",
        "head": "lm_head.decoder",
        "head.b": Foreign("lm_head.decoder.bias", twin="lm_head.bias"),
    },
    only=(*BERT.only, ("pad_token_id", PADDING)),
    written={"pad_token_id": PADDING},
    read=read_roberta,
    write=lambda config, fields: {**fields, "max_position_embeddings": config.context + SKIPPED + 1},
    ignored=(*BERT.ignored[:2], r"lm_head\.decoder\.weight"),
)


POOLING = {"mean": "mean", "bos": "first"}
"""Published names of poolings, and ours."""


def read_eurobert(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with those of the rotations, and what its head for classes reads."""
    if settings["head"] == "classes":
        pooling = fields.get("classifier_pooling", "late")
        if pooling not in POOLING:
            fields.refuse("classifier_pooling", f"supported: {', '.join(POOLING)}")
        settings = {**settings, "pooling": POOLING[pooling], "pooled_activation": "gelu"}
    return read_llama(fields, settings)


def write_eurobert(config: EncoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """A learned first vector has no published name; what would be nearest is written, and differs."""
    absent = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    fields = {**write_llama(config, fields), **absent, "mask_token_id": 0}  # one must be named, and none is read
    return {**fields, "classifier_pooling": "bos" if config.pooling == "first" else "mean"}


EUROBERT = replace(
    LLAMA,
    name="eurobert",
    architecture="encoder",
    classes={"EuroBertForSequenceClassification": "classes", "EuroBertModel": "none"},
    table={**LLAMA.table, "pooled_linear": "dense", "classifier": "classifier"},
    fields={**LLAMA.fields, "norm_eps": ("rms_norm_eps", Fields.number, 1e-5)},
    read=read_eurobert,
    write=write_eurobert,
)


def _stack(stack: str, *sublayers: str) -> Names:
    """Return the names of a stack; its first block holds the biases of all."""
    names: dict[str, str | Foreign] = {
        f"{stack}.final_norm": f"{stack}.final_layer_norm",
        f"{stack}.relative": f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias",
    }
    attention = {"query": "q", "key": "k", "value": "v", "output": "o"}
    for number, name in enumerate(sublayers):
        ours, theirs = f"{stack}.blocks.*.{name}", f"{stack}.block.*.layer.{number}"
        parts = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if name == "feed_forward" else attention
        names |= {f"{ours}.{part}": f"{theirs}.{_SUBLAYERS[name]}.{letter}" for part, letter in parts.items()}
        names[f"{ours}_norm"] = f"{theirs}.layer_norm"
    return names


def read_t5(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the activation, and whether it is gated."""
    projection = fields.get("feed_forward_proj", "relu")
    name = str(projection).removeprefix("gated-")
    if name not in ACTIVATIONS:
        fields.refuse("feed_forward_proj", f"supported: {', '.join(ACTIVATIONS)}, each also with gated- before it")
    # In T5, gated-gelu has always meant the form with tanh.
    activation = "gelu_tanh" if projection == "gated-gelu" else ACTIVATIONS[name]
    return {**settings, "activation": activation, "gated": str(projection).startswith("gated-")}


def write_t5(config: EncoderDecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    name = PUBLISHED_ACTIVATION[config.activation]
    if config.gated:
        name = {"gelu_new": "gated-gelu", "gelu": "gated-gelu_python"}.get(name, f"gated-{name}")
    return {**fields, "feed_forward_proj": name}


_SUBLAYERS = {"attention": "SelfAttention", "cross_attention": "EncDecAttention", "feed_forward": "DenseReluDense"}
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
        # Relative positions have no end; it was trained on this length.
        "context": ("n_positions", Fields.size, 512),
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
        **dict.fromkeys(("attention_bias", "feed_forward_bias", "scale_scores"), False),
        "norm": "rms",
        "positions": "relative",
        "shared_embedding": True,
    },
    only=(("is_decoder", False), ("is_encoder_decoder", True)),
    written={"is_encoder_decoder": True, "pad_token_id": 0},
    read=read_t5,
    write=write_t5,
    ignored=(
        r"(encoder|decoder)\.embed_tokens\.weight",
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        r"lm_head\.weight",
    ),
)

FAMILIES = {f.name: f for f in (GPT2, GPT_NEOX, BERT, DISTILBERT, ROBERTA, T5, LLAMA, MISTRAL, QWEN2, EUROBERT)}
