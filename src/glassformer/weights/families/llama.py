"""Llama, Mistral and Qwen2: pre-norm with RMS norms, rotary positions, a gated feed-forward layer."""

from __future__ import annotations

from typing import Any

from ...config import DecoderConfig, RotaryScaling, TransformerConfig
from ..family import Family, Tensor, linear, norm
from ..fields import PUBLISHED_ACTIVATION, Fields

_ROPE = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}
_SCALING = {
    "factor": "factor",
    "low_freq_factor": "low_factor",
    "high_freq_factor": "high_factor",
    "original_max_position_embeddings": "original_context",
}


def table(config: TransformerConfig) -> dict[str, Tensor]:
    """Return our names to those of Llama."""
    names = {
        "embedding.tokens.table": Tensor("model.embed_tokens.weight"),
        **norm("final_norm", "model.norm"),
        "head.w": Tensor("lm_head.weight", transposed=True),
    }
    for layer in range(config.layers):
        ours, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        names |= norm(f"{ours}.attention_norm", f"{theirs}.input_layernorm")
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            names |= linear(f"{ours}.attention.{part}", f"{theirs}.self_attn.{letter}_proj")
        names |= norm(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm")
        for part in ("gate", "up", "down"):
            names |= linear(f"{ours}.feed_forward.{part}", f"{theirs}.mlp.{part}_proj")
    return names


def read(fields: Fields) -> dict[str, Any]:
    """Return our settings for those that all three share."""
    heads, width = fields.size("num_attention_heads"), fields.size("hidden_size")
    return {
        "vocab": fields.size("vocab_size"),
        "width": width,
        "heads": heads,
        "head_width": fields.size("head_dim", max(width // heads, 1)),
        "kv_heads": fields.size("num_key_value_heads", heads),
        "layers": fields.layers("num_hidden_layers"),
        "context": fields.size("max_position_embeddings"),
        "feed_forward": fields.size("intermediate_size"),
        "activation": fields.activation("hidden_act", "silu"),
        "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "tied_head": fields.flag("tie_word_embeddings", False),
        "attention_dropout": fields.rate("attention_dropout"),
        "init_std": fields.number("initializer_range", 0.02),
        "gated": True,
        "norm": "rms",
        "positions": "rotary",
        "attention_bias": False,
        "feed_forward_bias": False,
        **_read_rope(fields),
    }


def _read_rope(fields: Fields) -> dict[str, Any]:
    name = "rope_parameters" if fields.values.get("rope_parameters") else "rope_scaling"
    given = fields.values.get(name) or {}
    if not isinstance(given, dict) or not given.keys() <= _ROPE | _SCALING.keys():
        fields.refuse(name, "it has settings that are not supported")
    rope = Fields(given, f"{name} of {fields.source}")
    fields.only("partial_rotary_factor", 1.0, None)
    rope.only("partial_rotary_factor", 1.0, None)
    kind = given.get("rope_type", given.get("type", "default"))
    base = rope.number("rope_theta", fields.values.get("rope_theta", 10000.0))
    if kind == "default":
        return {"rotary_base": base}
    if kind != "llama3":
        fields.refuse(name, "of the kinds of scaling, only 'default' and 'llama3' are supported")
    scaling = {ours: rope.number(theirs) for theirs, ours in list(_SCALING.items())[:3]}
    if min(scaling.values()) <= 0 or scaling["high_factor"] <= scaling["low_factor"]:
        fields.refuse(name, "its factors must be positive, the high one above the low one")
    original = rope.size("original_max_position_embeddings", fields.size("max_position_embeddings"))
    return {"rotary_base": base, "rotary_scaling": RotaryScaling(**scaling, original_context=original)}


def write(config: DecoderConfig) -> dict[str, Any]:
    """Return the fields that all three share for our settings."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    if config.rotary_scaling is not None:
        scaling = {theirs: getattr(config.rotary_scaling, ours) for theirs, ours in _SCALING.items()}
        rope |= {"rope_type": "llama3", **scaling}
    return {
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads,
        "head_dim": config.channels,
        "num_hidden_layers": config.layers,
        "max_position_embeddings": config.context,
        "intermediate_size": config.hidden,
        "hidden_act": PUBLISHED_ACTIVATION[config.activation],
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_head,
        "attention_dropout": config.weight_dropout,
        "initializer_range": config.init_std or 0.02,
        "rope_parameters": rope,
    }


def read_llama(fields: Fields) -> dict[str, Any]:
    """Llama may have biases everywhere, or none."""
    biases = {name: fields.flag(theirs, False) for name, theirs in _LLAMA_BIASES.items()}
    return {**read(fields), **biases}


def write_llama(config: DecoderConfig) -> dict[str, Any]:
    return {**write(config), **{theirs: getattr(config, ours) for ours, theirs in _LLAMA_BIASES.items()}}


def read_mistral(fields: Fields) -> dict[str, Any]:
    """Mistral looks back over a window; a field that is missing is not null."""
    window = fields.get("sliding_window", 4096)
    heads = {"kv_heads": fields.size("num_key_value_heads", 8)} if "num_key_value_heads" not in fields.values else {}
    return {**read(fields), **heads, "window": None if window is None else fields.size("sliding_window", 4096)}


def write_mistral(config: DecoderConfig) -> dict[str, Any]:
    return {**write(config), "sliding_window": config.window}


def read_qwen2(fields: Fields) -> dict[str, Any]:
    """Qwen2 has biases on query, key and value; its window, if used, must be that of every layer."""
    settings = read(fields)
    window = fields.size("sliding_window", 4096) if fields.flag("use_sliding_window", False) else None
    first = fields.get("max_window_layers", 28)
    if fields.get("layer_types", None) is not None:
        kinds = fields.get("layer_types")
        if kinds not in ([kind] * settings["layers"] for kind in ("full_attention", "sliding_attention")):
            fields.refuse("layer_types", "only layers of one kind are supported")
        window = window if kinds[0] == "sliding_attention" else None
    elif window is not None and first != 0:
        if type(first) is not int or first < settings["layers"]:
            fields.refuse("max_window_layers", "only a window of all layers (0) or of none is supported")
        window = None
    return {**settings, "attention_bias": True, "output_bias": False, "window": window}


def write_qwen2(config: DecoderConfig) -> dict[str, Any]:
    fields = {**write(config), "use_sliding_window": config.window is not None, "max_window_layers": 0}
    if config.head_width is None or config.width == config.heads * config.channels:
        del fields["head_dim"]  # it follows from the others, and Qwen2's config has no such field
    return fields if config.window is None else {**fields, "sliding_window": config.window}


_LLAMA_BIASES = {"attention_bias": "attention_bias", "feed_forward_bias": "mlp_bias"}
_SHARED: dict[str, Any] = {
    "architecture": "decoder",
    "prefix": "model.",
    "table": table,
    "ignored": (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"rotary_emb\.inv_freq", r"lm_head\.weight"),
}
LLAMA = Family(
    name="llama",
    classes={"LlamaForCausalLM": "tokens", "LlamaModel": "tokens"},
    read=read_llama,
    write=write_llama,
    **_SHARED,
)
MISTRAL = Family(
    name="mistral",
    classes={"MistralForCausalLM": "tokens", "MistralModel": "tokens"},
    read=read_mistral,
    write=write_mistral,
    **_SHARED,
)
QWEN2 = Family(
    name="qwen2",
    classes={"Qwen2ForCausalLM": "tokens", "Qwen2Model": "tokens"},
    read=read_qwen2,
    write=write_qwen2,
    **_SHARED,
)
