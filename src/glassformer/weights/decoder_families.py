"""The families of published decoders, by their `model_type`.

gpt2                     pre-norm, learned positions; query, key and value in one matrix, stored as (inputs, outputs)
gpt_neox                 pre-norm with layer norms and rotary positions: our own language models are exported as this
llama, mistral, qwen2    pre-norm with RMS norms, rotary positions, a gated feed-forward layer
"""

from dataclasses import replace
from typing import Any

from ..config import DecoderConfig, TransformerConfig
from .family import FIELDS, Family, Foreign, block_names
from .fields import Fields, Table


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


def write_llama(config: TransformerConfig, fields: dict[str, Any]) -> dict[str, Any]:
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
