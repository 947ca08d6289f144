"""The families of published models, by their `model_type`.

gpt2                     pre-norm, learned positions; query, key and value in one matrix, stored as (inputs, outputs)
gpt_neox                 pre-norm with layer norms and rotary positions: our own language models are exported as this
llama, mistral, qwen2    pre-norm with RMS norms, rotary positions, a gated feed-forward layer
bert, distilbert         post-norm, learned positions, a norm on the embeddings; bert has segments
roberta                  its positions count the tokens that are not padding, from 2 on: row 1 is padding's
t5                       relative positions, RMS norms, no biases, scores that are not scaled
"""

from dataclasses import replace
from typing import Any

from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from .family import FIELDS, Family, Foreign, Names, block_names
from .fields import ACTIVATIONS, PUBLISHED_ACTIVATION, Fields, Table


def read_neox(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the type of block and the rotations."""
    block = "parallel" if fields.flag("use_parallel_residual", True) else "residual"
    _, rope = fields.rotations()
    channels = settings["width"] // settings["heads"]
    turning = int(channels * rope.number("partial_rotary_factor", fields.number("rotary_pct", 0.25)))
    base = rope.number("rope_theta", fields.number("rotary_emb_base", 10000.0))
    partial = None if turning == channels else turning
    return {**settings, "block": block, "rotary_base": base, "rotary_channels": partial}


def write_neox(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    share = (config.rotary_channels or config.channels) / config.channels
    rope = {"rope_type": "default", "rope_theta": config.rotary_base, "partial_rotary_factor": share}
    return {**fields, "use_parallel_residual": config.block == "parallel", "rope_parameters": rope}


GPT2 = Family(
    name="gpt2",
    classes={"GPT2LMHeadModel": "tokens", "GPT2Model": "tokens"},
    prefix="transformer.",
    table={
        "embedding.tokens": "wte",
        "embedding.positions": "wpe",
        **block_names("h.*", "ln_1 attn.c_attn attn.c_attn attn.c_attn attn.c_proj", "ln_2 mlp.c_fc mlp.c_proj"),
        "final_norm": "ln_f",
        "head.w": Foreign("lm_head.weight", transposed=True),
    },
    transposed=False,
    fields={
        **FIELDS,
        "width": ("n_embd", Fields.size),
        "heads": ("n_head", Fields.size),
        "layers": ("n_layer", Fields.layers),
        "context": ("n_positions", Fields.size, lambda fields: fields.values.get("n_ctx", 1024)),
        "feed_forward": ("n_inner", Fields.size, lambda fields: 4 * fields.size("n_embd")),
        "activation": ("activation_function", Fields.activation, "gelu_new"),
        "norm_eps": ("layer_norm_epsilon", Fields.number, 1e-5),
        "scale_scores": ("scale_attn_weights", Fields.flag, True),
        "dropout": ("resid_pdrop", Fields.rate, 0.1),
        "attention_dropout": ("attn_pdrop", Fields.rate, 0.1),
        "embedding_dropout": ("embd_pdrop", Fields.rate, 0.1),
    },
    only=(("scale_attn_by_inverse_layer_idx", False), ("add_cross_attention", False)),
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias)", r"lm_head\.weight"),
)
GPT_NEOX = Family(
    name="gpt_neox",
    classes={"GPTNeoXForCausalLM": "tokens"},
    prefix="gpt_neox.",
    table={
        "embedding.tokens": "embed_in",
        **block_names(
            "layers.*",
            "input_layernorm " + 3 * "attention.query_key_value " + "attention.dense",
            "post_attention_layernorm mlp.dense_h_to_4h mlp.dense_4h_to_h",
        ),
        "final_norm": "final_layer_norm",
        "head": "embed_out",
    },
    by_head=True,
    fields={
        **FIELDS,
        "norm_eps": ("layer_norm_eps", Fields.number, 1e-5),
        "attention_bias": ("attention_bias", Fields.flag, True),
        "tied_head": ("tie_word_embeddings", Fields.flag, False),
        "dropout": ("hidden_dropout", Fields.rate),
        "attention_dropout": ("attention_dropout", Fields.rate),
    },
    fixed={"positions": "rotary"},
    read=read_neox,
    write=write_neox,
    ignored=(
        r"layers\.\d+\.attention\.(bias|masked_bias)",
        r"(layers\.\d+\.attention\.)?rotary_emb\.inv_freq",
        r"embed_out\.weight",
    ),
)

_SCALING = {"factor": "factor", "low_factor": "low_freq_factor", "high_factor": "high_freq_factor"}
_TRAINED_ON = "original_max_position_embeddings"


def read_llama(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with those of the rotations."""
    scaling, rope = fields.rotations(*_SCALING.values(), _TRAINED_ON, allowed=("default", "llama3"))
    rope.only("partial_rotary_factor", 1.0, None)
    settings = {**settings, "rotary_base": rope.number("rope_theta", fields.values.get("rope_theta", 10000.0))}
    if scaling == "default":
        return settings
    stretch = {ours: rope.number(theirs) for ours, theirs in _SCALING.items()}
    return {**settings, "rotary_scaling": {**stretch, "original_context": rope.size(_TRAINED_ON, settings["context"])}}


def write_llama(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    if config.rotary_scaling is not None:
        stretch = {theirs: getattr(config.rotary_scaling, ours) for ours, theirs in _SCALING.items()}
        rope |= {"rope_type": "llama3", **stretch, _TRAINED_ON: config.rotary_scaling.original_context}
    return {**fields, "rope_parameters": rope}


def read_qwen2(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Qwen2's window, if used, must be that of every layer."""
    window = fields.size("sliding_window", 4096) if fields.flag("use_sliding_window", False) else None
    first, layer_types = fields.get("max_window_layers", 28), fields.get("layer_types", None)
    if layer_types is not None:
        if layer_types not in ([name] * settings["layers"] for name in ("full_attention", "sliding_attention")):
            fields.refuse("layer_types", "the same type for all layers is supported")
        window = window if layer_types[0] == "sliding_attention" else None
    elif window is not None and first != 0:
        if type(first) is not int or first < settings["layers"]:
            fields.refuse("max_window_layers", "only a window of all layers (0) or of none is supported")
        window = None
    return {**read_llama(fields, settings), "window": window}


def write_qwen2(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    fields = {**write_llama(config, fields), "use_sliding_window": config.window is not None, "max_window_layers": 0}
    if config.head_width is None or config.width == config.heads * config.channels:
        del fields["head_dim"]  # it follows from the others, and Qwen2's config has no such field
    return fields if config.window is None else {**fields, "sliding_window": config.window}


_KV = "num_key_value_heads"
_LLAMA_FIELDS: Table = {
    **FIELDS,
    "head_width": ("head_dim", Fields.size, lambda f: max(f.size("hidden_size") // f.size("num_attention_heads"), 1)),
    "kv_heads": (_KV, Fields.size, lambda fields: fields.size("num_attention_heads")),
    "activation": ("hidden_act", Fields.activation, "silu"),
    "norm_eps": ("rms_norm_eps", Fields.number, 1e-6),
    "tied_head": ("tie_word_embeddings", Fields.flag, False),
    "attention_dropout": ("attention_dropout", Fields.rate),
}
_NO_BIASES = {"attention_bias": False, "feed_forward_bias": False}
LLAMA = Family(
    name="llama",
    classes={"LlamaForCausalLM": "tokens", "LlamaModel": "tokens"},
    prefix="model.",
    table={
        "embedding.tokens": "embed_tokens",
        **block_names(
            "layers.*",
            "input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj",
            "post_attention_layernorm mlp.up_proj mlp.down_proj mlp.gate_proj",
        ),
        "final_norm": "norm",
        "head": "lm_head",
    },
    fields={
        **_LLAMA_FIELDS,
        "attention_bias": ("attention_bias", Fields.flag, False),
        "feed_forward_bias": ("mlp_bias", Fields.flag, False),
    },
    fixed={"gated": True, "norm": "rms", "positions": "rotary"},
    only=(("partial_rotary_factor", 1.0, None),),
    read=read_llama,
    write=write_llama,
    ignored=(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq", r"lm_head\.weight"),
)
MISTRAL = replace(
    LLAMA,
    name="mistral",
    classes={"MistralForCausalLM": "tokens", "MistralModel": "tokens"},
    fields={
        **_LLAMA_FIELDS,
        # A field that is missing stands for 8, one that is null for as many as there are heads.
        "kv_heads": (_KV, Fields.size, lambda f: f.size("num_attention_heads") if _KV in f.values else 8),
        "window": ("sliding_window", Fields.optional_size, 4096),
    },
    fixed={**LLAMA.fixed, **_NO_BIASES},
)
QWEN2 = replace(
    LLAMA,
    name="qwen2",
    classes={"Qwen2ForCausalLM": "tokens", "Qwen2Model": "tokens"},
    fields=_LLAMA_FIELDS,
    fixed={**LLAMA.fixed, **_NO_BIASES, "attention_bias": True, "output_bias": False},
    read=read_qwen2,
    write=write_qwen2,
)


# --- encoders and encoder-decoders -----------------------------------------------------------------------------------

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
DISTILBERT = Family(
    name="distilbert",
    architecture="encoder",
    classes={"DistilBertForMaskedLM": "tokens", "DistilBertModel": "none"},
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

FAMILIES = {f.name: f for f in (GPT2, GPT_NEOX, BERT, DISTILBERT, ROBERTA, T5, LLAMA, MISTRAL, QWEN2)}
