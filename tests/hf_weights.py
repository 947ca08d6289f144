"""Small Hugging Face models with random weights, and ours with the same ones, copied by hand.

theirs, model, params = pair("gpt2", seed=0)
"""

from typing import Any, NamedTuple

import numpy as np

from glassformer.models import Model, build
from glassformer.tree import check_same, unflatten
from oracles import require

VOCAB, CONTEXT = 13, 40
END, START = 1, 0
"""Ids that end an answer, and that start those of T5."""


class Pair(NamedTuple):
    theirs: Any
    model: Model
    params: Any


def pair(family: str, *, seed: int = 0, dtype: str = "float64") -> Pair:
    """A model of Hugging Face and ours, computing the same."""
    torch = require("torch")
    theirs, model, names = FAMILIES[family](require("transformers"))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            # Far larger than at the start of training, so that answers differ and end at different lengths.
            mean, spread = (1.0, 0.2) if "norm" in name or "ln_" in name else (0.0, 0.5)
            weight.copy_(torch.tensor(mean + spread * rng.standard_normal(tuple(weight.shape))))
    theirs = theirs.to(getattr(torch, dtype)).eval()
    weights = {name: weight.detach().numpy() for name, weight in theirs.state_dict().items()}
    params = unflatten({ours: read(weights).copy() for ours, read in names.items()})
    if model.config.tied_head:
        params["head"] = {}
    if family == "t5":
        params["source_embedding"] = {}
    check_same(params, model.specs())
    return Pair(theirs, model, params)


def gpt2(transformers: Any) -> tuple[Any, Model, dict]:
    """GPT-2 keeps query, key and value in one matrix, stored as (in, out)."""
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_head=2, n_layer=2, n_positions=CONTEXT, bos_token_id=START, eos_token_id=END
    )
    model = build("gpt2", vocab=VOCAB, width=16, heads=2, layers=2, context=CONTEXT)
    names = {
        "embedding.tokens.table": plain("transformer.wte.weight"),
        "embedding.positions.table": plain("transformer.wpe.weight"),
        "final_norm.gamma": plain("transformer.ln_f.weight"),
        "final_norm.beta": plain("transformer.ln_f.bias"),
    }
    for layer in range(2):
        ours, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        for name, norm in (("attention_norm", "ln_1"), ("feed_forward_norm", "ln_2")):
            names[f"{ours}.{name}.gamma"] = plain(f"{theirs}.{norm}.weight")
            names[f"{ours}.{name}.beta"] = plain(f"{theirs}.{norm}.bias")
        for kind, suffix in (("w", "weight"), ("b", "bias")):
            for number, name in enumerate(("query", "key", "value")):
                names[f"{ours}.attention.{name}.{kind}"] = third(f"{theirs}.attn.c_attn.{suffix}", number)
            names[f"{ours}.attention.output.{kind}"] = plain(f"{theirs}.attn.c_proj.{suffix}")
            names[f"{ours}.feed_forward.up.{kind}"] = plain(f"{theirs}.mlp.c_fc.{suffix}")
            names[f"{ours}.feed_forward.down.{kind}"] = plain(f"{theirs}.mlp.c_proj.{suffix}")
    return transformers.GPT2LMHeadModel(config), model, names


def llama(transformers: Any) -> tuple[Any, Model, dict]:
    """Llama, with two heads of queries for each head of keys."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
        intermediate_size=24, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, bos_token_id=START, eos_token_id=END,
    )  # fmt: skip
    model = build("llama-2-7b", vocab=VOCAB, width=16, heads=4, kv_heads=2, layers=2, context=CONTEXT, feed_forward=24)
    names = {
        "embedding.tokens.table": plain("model.embed_tokens.weight"),
        "final_norm.gamma": plain("model.norm.weight"),
        "head.w": turned("lm_head.weight"),
    }
    parts = {
        "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj", "attention.output": "self_attn.o_proj",
        "feed_forward.gate": "mlp.gate_proj", "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj",
    }  # fmt: skip
    for layer in range(2):
        ours, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        names[f"{ours}.attention_norm.gamma"] = plain(f"{theirs}.input_layernorm.weight")
        names[f"{ours}.feed_forward_norm.gamma"] = plain(f"{theirs}.post_attention_layernorm.weight")
        names |= {f"{ours}.{a}.w": turned(f"{theirs}.{b}.weight") for a, b in parts.items()}
    return transformers.LlamaForCausalLM(config), model, names


def t5(transformers: Any) -> tuple[Any, Model, dict]:
    """T5: one table of tokens for source, target and head; the first block holds the biases of all."""
    config = transformers.T5Config(
        vocab_size=VOCAB, d_model=16, num_heads=2, d_kv=8, num_layers=2, d_ff=24, eos_token_id=END, pad_token_id=START,
        decoder_start_token_id=START,
    )  # fmt: skip
    model = build("t5-small", vocab=VOCAB, width=16, heads=2, head_width=8, layers=2, feed_forward=24, context=CONTEXT)
    names = {"embedding.tokens.table": plain("shared.weight")}
    for stack in ("encoder", "decoder"):
        names[f"{stack}.final_norm.gamma"] = plain(f"{stack}.final_layer_norm.weight")
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        names[f"{stack}.relative.table"] = plain(bias)
        sublayers = {
            "attention": "SelfAttention",
            "cross_attention": "EncDecAttention",
            "feed_forward": "DenseReluDense",
        }
        if stack == "encoder":
            del sublayers["cross_attention"]
        linear = {"query": "q", "key": "k", "value": "v", "output": "o"}
        for layer in range(2):
            for number, (name, their_name) in enumerate(sublayers.items()):
                ours, theirs = f"{stack}.blocks.{layer}.{name}", f"{stack}.block.{layer}.layer.{number}"
                parts = {"up": "wi", "down": "wo"} if name == "feed_forward" else linear
                names[f"{ours}_norm.gamma"] = plain(f"{theirs}.layer_norm.weight")
                names |= {f"{ours}.{a}.w": turned(f"{theirs}.{their_name}.{b}.weight") for a, b in parts.items()}
    return transformers.T5ForConditionalGeneration(config), model, names


def plain(name: str):
    return lambda weights: weights[name]


def turned(name: str):
    return lambda weights: weights[name].T


def third(name: str, number: int):
    return lambda weights: np.split(weights[name], 3, axis=-1)[number]


FAMILIES = {"gpt2": gpt2, "llama": llama, "t5": t5}
