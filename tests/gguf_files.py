"""Small GGUF files, written with the format's own library."""

import json

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from tokenizer_files import byte_level_bpe

VOCAB = 403


def write(path, architecture, settings, tensors, types=None):
    """Write a file; `types` names the type of tensors that are not F32; settings given as None are left out."""
    writer = GGUFWriter(path, architecture)
    for key, value in settings.items():
        if value is not None:
            _add(writer, key, value)
    for name, array in tensors.items():
        kind = GGMLQuantizationType[(types or {}).get(name, "F32")]
        if kind == GGMLQuantizationType.F32:
            writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))
        elif array.dtype == np.uint8:  # already in blocks
            writer.add_tensor(name, array, raw_dtype=kind)
        else:
            writer.add_tensor(name, quantize(np.ascontiguousarray(array, dtype=np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_tokenizer(**changes):
    """The settings of a byte-level tokenizer: up to 400 tokens, then an end token, a user's word and an unused one."""
    model = json.loads(byte_level_bpe().to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda pair: pair[1])]
    settings = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": [*tokens, "<|im_end|>", "<tool>", "<unused>"],
        "token_type": [3, *[1] * (len(tokens) - 1), 3, 4, 5],
        "merges": [" ".join(merge) for merge in model["merges"]],
        "bos_token_id": 0,
        "eos_token_id": len(tokens),
        "add_bos_token": False,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in settings.items()}


def llama_settings(architecture="llama", **changes):
    """The settings of a model of width 16 with two layers."""
    settings = {
        "context_length": 64,
        "embedding_length": 16,
        "block_count": 2,
        "feed_forward_length": 24,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": 4,
        **changes,
    }
    return {f"{architecture}.{key}": value for key, value in settings.items()}


def llama_tensors(rng, *, width=16, hidden=24, heads=4, kv_heads=2, layers=2, vocab=VOCAB):
    """Random tensors under the names of llama.cpp."""
    shared = width // heads * kv_heads
    shapes = {
        "attn_norm": (width,),
        "attn_q": (width, width),
        "attn_k": (shared, width),
        "attn_v": (shared, width),
        "attn_output": (width, width),
        "ffn_norm": (width,),
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }
    tensors = {"token_embd.weight": rng.standard_normal((vocab, width)), "output_norm.weight": np.ones(width)}
    for layer in range(layers):
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = rng.standard_normal(shape)
    return tensors


def from_llama(theirs, *, permuted=True):
    """The tensors of a Hugging Face model of the Llama kind, under the names of llama.cpp.

    permuted    put the channels that turn together side by side, as llama.cpp does for Llama
    """
    config = theirs.config
    names = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    tensors = {}
    for name, weight in theirs.state_dict().items():
        array = weight.detach().float().numpy()
        place, kind = name.removeprefix("model.").rsplit(".", 1)
        if place == "lm_head" and config.tie_word_embeddings:
            continue
        if place in TOP:
            tensors[f"{TOP[place]}.{kind}"] = array
            continue
        _, layer, part = place.split(".", 2)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(names[part])
        if permuted and heads:
            halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        tensors[f"blk.{layer}.{names[part]}.{kind}"] = array
    return tensors


def from_gpt2(theirs):
    """The tensors of a Hugging Face GPT-2; its matrices are (inputs, outputs), those of llama.cpp the other way."""
    names = {
        "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    }  # fmt: skip
    tensors = {}
    for name, weight in theirs.state_dict().items():
        array = weight.detach().float().numpy()
        place, kind = name.removeprefix("transformer.").rsplit(".", 1)
        if place in ("wte", "wpe", "ln_f"):
            top = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}[place]
            tensors[f"{top}.{kind}"] = array
        elif place.startswith("h."):
            _, layer, part = place.split(".", 2)
            tensors[f"blk.{layer}.{names[part]}.{kind}"] = array.T if array.ndim == 2 else array
    return tensors


TOP = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}


def _add(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
