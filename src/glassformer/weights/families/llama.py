"""Llama, Mistral and Qwen2: pre-norm with RMS norms, rotary positions, a gated feed-forward layer."""

from dataclasses import replace
from typing import Any

from ...config import DecoderConfig, RotaryScaling
from ..family import Family
from ..fields import Fields

_SCALING = {
    "factor": "factor",
    "low_freq_factor": "low_factor",
    "high_freq_factor": "high_factor",
    "original_max_position_embeddings": "original_context",
}


def _head_width(fields: Fields) -> int:
    return max(fields.size("hidden_size") // fields.size("num_attention_heads"), 1)


_FIELDS = {
    "vocab": ("vocab_size", Fields.size),
    "width": ("hidden_size", Fields.size),
    "heads": ("num_attention_heads", Fields.size),
    "head_width": ("head_dim", Fields.size, _head_width),
    "kv_heads": ("num_key_value_heads", Fields.size, lambda fields: fields.size("num_attention_heads")),
    "layers": ("num_hidden_layers", Fields.layers),
    "context": ("max_position_embeddings", Fields.size),
    "feed_forward": ("intermediate_size", Fields.size),
    "activation": ("hidden_act", Fields.activation, "silu"),
    "norm_eps": ("rms_norm_eps", Fields.number, 1e-6),
    "tied_head": ("tie_word_embeddings", Fields.flag, False),
    "attention_dropout": ("attention_dropout", Fields.rate),
    "init_std": ("initializer_range", Fields.number, 0.02),
}
_FIXED = {"gated": True, "norm": "rms", "positions": "rotary", "attention_bias": False, "feed_forward_bias": False}


def read(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with those of the rotations."""
    name, kind, rope = fields.rotations(*_SCALING, kinds=("default", "llama3"))
    rope.only("partial_rotary_factor", 1.0, None)
    settings = {**settings, "rotary_base": rope.number("rope_theta", fields.values.get("rope_theta", 10000.0))}
    if kind == "default":
        return settings
    scaling = {ours: rope.number(theirs) for theirs, ours in list(_SCALING.items())[:3]}
    if min(scaling.values()) <= 0 or scaling["high_factor"] <= scaling["low_factor"]:
        fields.refuse(name, "its factors must be positive, the high one above the low one")
    original = rope.size("original_max_position_embeddings", settings["context"])
    return {**settings, "rotary_scaling": RotaryScaling(**scaling, original_context=original)}


def write(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with those of the rotations."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    if config.rotary_scaling is not None:
        scaling = {theirs: getattr(config.rotary_scaling, ours) for theirs, ours in _SCALING.items()}
        rope |= {"rope_type": "llama3", **scaling}
    return {**fields, "rope_parameters": rope}


def read_qwen2(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Qwen2's window, if used, must be that of every layer."""
    window = fields.size("sliding_window", 4096) if fields.flag("use_sliding_window", False) else None
    first = fields.get("max_window_layers", 28)
    if fields.get("layer_types", None) is not None:
        layer_types = fields.get("layer_types")
        if layer_types not in ([name] * settings["layers"] for name in ("full_attention", "sliding_attention")):
            fields.refuse("layer_types", "only layers of one kind are supported")
        window = window if layer_types[0] == "sliding_attention" else None
    elif window is not None and first != 0:
        if type(first) is not int or first < settings["layers"]:
            fields.refuse("max_window_layers", "only a window of all layers (0) or of none is supported")
        window = None
    return {**read(fields, settings), "window": window}


def write_qwen2(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    fields = {**write(config, fields), "use_sliding_window": config.window is not None, "max_window_layers": 0}
    if config.head_width is None or config.width == config.heads * config.channels:
        del fields["head_dim"]  # it follows from the others, and Qwen2's config has no such field
    return fields if config.window is None else {**fields, "sliding_window": config.window}


def _mistral_heads(fields: Fields) -> int:
    """Return how many key/value heads there are where none are given; a field that is missing is not null."""
    return fields.size("num_attention_heads") if "num_key_value_heads" in fields.values else 8


def _mistral_window(fields: Fields, name: str) -> int | None:
    return None if fields.get(name, 4096) is None else fields.size(name, 4096)


LLAMA = Family(
    name="llama",
    architecture="decoder",
    classes={"LlamaForCausalLM": "tokens", "LlamaModel": "tokens"},
    prefix="model.",
    table={
        "embedding.tokens": "embed_tokens",
        "blocks.*.attention_norm": "layers.*.input_layernorm",
        "blocks.*.attention.query": "layers.*.self_attn.q_proj",
        "blocks.*.attention.key": "layers.*.self_attn.k_proj",
        "blocks.*.attention.value": "layers.*.self_attn.v_proj",
        "blocks.*.attention.output": "layers.*.self_attn.o_proj",
        "blocks.*.feed_forward_norm": "layers.*.post_attention_layernorm",
        "blocks.*.feed_forward.gate": "layers.*.mlp.gate_proj",
        "blocks.*.feed_forward.up": "layers.*.mlp.up_proj",
        "blocks.*.feed_forward.down": "layers.*.mlp.down_proj",
        "final_norm": "norm",
        "head": "lm_head",
    },
    fields={
        **_FIELDS,
        "attention_bias": ("attention_bias", Fields.flag, False),
        "feed_forward_bias": ("mlp_bias", Fields.flag, False),
    },
    fixed=_FIXED,
    only=(("partial_rotary_factor", 1.0, None),),
    read=read,
    write=write,
    ignored=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"rotary_emb\.inv_freq", r"lm_head\.weight"),
)
MISTRAL = replace(
    LLAMA,
    name="mistral",
    classes={"MistralForCausalLM": "tokens", "MistralModel": "tokens"},
    fields={
        **_FIELDS,
        "kv_heads": ("num_key_value_heads", Fields.size, _mistral_heads),
        "window": ("sliding_window", _mistral_window),
    },
)
QWEN2 = replace(
    LLAMA,
    name="qwen2",
    classes={"Qwen2ForCausalLM": "tokens", "Qwen2Model": "tokens"},
    fields=_FIELDS,
    fixed={**_FIXED, "attention_bias": True, "output_bias": False},
    read=read_qwen2,
    write=write_qwen2,
)
