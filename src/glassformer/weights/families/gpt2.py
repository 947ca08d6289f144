"""GPT-2: pre-norm, learned positions, query, key and value in one matrix, stored as (inputs, outputs)."""

from __future__ import annotations

from typing import Any

from ...config import TransformerConfig
from ..family import Family, Tensor, linear, norm
from ..fields import PUBLISHED_ACTIVATION, Fields


def table(config: TransformerConfig) -> dict[str, Tensor]:
    """Return our names to those of GPT-2."""
    names = {
        "embedding.tokens.table": Tensor("transformer.wte.weight"),
        "embedding.positions.table": Tensor("transformer.wpe.weight"),
        **norm("final_norm", "transformer.ln_f"),
        "head.w": Tensor("lm_head.weight", transposed=True),
    }
    for layer in range(config.layers):
        ours, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        names |= norm(f"{ours}.attention_norm", f"{theirs}.ln_1")
        names |= norm(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
        for number, part in enumerate(("query", "key", "value")):
            for kind, suffix in (("w", "weight"), ("b", "bias")):
                names[f"{ours}.attention.{part}.{kind}"] = Tensor(f"{theirs}.attn.c_attn.{suffix}", part=(number, 3))
        names |= linear(f"{ours}.attention.output", f"{theirs}.attn.c_proj", transposed=False)
        names |= linear(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", transposed=False)
        names |= linear(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", transposed=False)
    return names


def read(fields: Fields) -> dict[str, Any]:
    """Return our settings for those of GPT-2."""
    fields.only("scale_attn_by_inverse_layer_idx", False)
    fields.only("add_cross_attention", False)
    width = fields.size("n_embd")
    return {
        "vocab": fields.size("vocab_size"),
        "width": width,
        "heads": fields.size("n_head"),
        "layers": fields.layers("n_layer"),
        "context": fields.size("n_positions", fields.values.get("n_ctx", 1024)),
        "feed_forward": fields.size("n_inner", 4 * width),
        "activation": fields.activation("activation_function", "gelu_new"),
        "norm_eps": fields.number("layer_norm_epsilon", 1e-5),
        "scale_scores": fields.flag("scale_attn_weights", True),
        "tied_head": fields.flag("tie_word_embeddings", True),
        "dropout": fields.rate("resid_pdrop", 0.1),
        "attention_dropout": fields.rate("attn_pdrop", 0.1),
        "embedding_dropout": fields.rate("embd_pdrop", 0.1),
        "init_std": fields.number("initializer_range", 0.02),
    }


def write(config: TransformerConfig) -> dict[str, Any]:
    """Return the fields of GPT-2 for our settings."""
    return {
        "vocab_size": config.vocab,
        "n_embd": config.width,
        "n_head": config.heads,
        "n_layer": config.layers,
        "n_positions": config.context,
        "n_inner": config.hidden,
        "activation_function": PUBLISHED_ACTIVATION[config.activation],
        "layer_norm_epsilon": config.norm_eps,
        "scale_attn_weights": config.scale_scores,
        "tie_word_embeddings": config.tied_head,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.weight_dropout,
        "embd_pdrop": config.input_dropout,
        "initializer_range": config.init_std or 0.02,
    }


GPT2 = Family(
    name="gpt2",
    architecture="decoder",
    classes={"GPT2LMHeadModel": "tokens", "GPT2Model": "tokens"},
    prefix="transformer.",
    table=table,
    read=read,
    write=write,
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias)", r"lm_head\.weight"),
)
