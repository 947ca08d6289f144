"""GPT-NeoX: pre-norm with layer norms, rotary positions, two matrices feed forward, in parallel blocks or plain ones.

It is what our own language models are exported as: of the published layouts, the one with layer norms and rotations.
Query, key and value are one matrix, side by side within each head.
"""

from typing import Any

from ...config import DecoderConfig
from ..family import Family
from ..fields import Fields


def read(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the kind of block and the base of the rotations."""
    block = "parallel" if fields.flag("use_parallel_residual", True) else "residual"
    _, _, rope = fields.rotations()
    channels = settings["width"] // settings["heads"]
    turning = int(channels * rope.number("partial_rotary_factor", fields.number("rotary_pct", 0.25)))
    base = rope.number("rope_theta", fields.number("rotary_emb_base", 10000.0))
    partial = None if turning == channels else turning
    return {**settings, "block": block, "rotary_base": base, "rotary_channels": partial}


def write(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the kind of block and the rotations."""
    share = (config.rotary_channels or config.channels) / config.channels
    rope = {"rope_type": "default", "rope_theta": config.rotary_base, "partial_rotary_factor": share}
    return {**fields, "use_parallel_residual": config.block == "parallel", "rope_parameters": rope}


GPT_NEOX = Family(
    name="gpt_neox",
    architecture="decoder",
    classes={"GPTNeoXForCausalLM": "tokens"},
    prefix="gpt_neox.",
    table={
        "embedding.tokens": "embed_in",
        "blocks.*.attention_norm": "layers.*.input_layernorm",
        "blocks.*.attention.query": "layers.*.attention.query_key_value",
        "blocks.*.attention.key": "layers.*.attention.query_key_value",
        "blocks.*.attention.value": "layers.*.attention.query_key_value",
        "blocks.*.attention.output": "layers.*.attention.dense",
        "blocks.*.feed_forward_norm": "layers.*.post_attention_layernorm",
        "blocks.*.feed_forward.up": "layers.*.mlp.dense_h_to_4h",
        "blocks.*.feed_forward.down": "layers.*.mlp.dense_4h_to_h",
        "final_norm": "final_layer_norm",
        "head": "embed_out",
    },
    by_head=True,
    fields={
        "vocab": ("vocab_size", Fields.size),
        "width": ("hidden_size", Fields.size),
        "heads": ("num_attention_heads", Fields.size),
        "layers": ("num_hidden_layers", Fields.layers),
        "context": ("max_position_embeddings", Fields.size),
        "feed_forward": ("intermediate_size", Fields.size),
        "activation": ("hidden_act", Fields.activation, "gelu"),
        "norm_eps": ("layer_norm_eps", Fields.number, 1e-5),
        "attention_bias": ("attention_bias", Fields.flag, True),
        "tied_head": ("tie_word_embeddings", Fields.flag, False),
        "dropout": ("hidden_dropout", Fields.rate),
        "attention_dropout": ("attention_dropout", Fields.rate),
        "init_std": ("initializer_range", Fields.number, 0.02),
    },
    fixed={"positions": "rotary"},
    read=read,
    write=write,
    ignored=(
        r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
        r"rotary_emb\.inv_freq",
        r"embed_out\.weight",
    ),
)
