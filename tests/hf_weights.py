"""Small Hugging Face models with random weights, and ours with the same ones, read from their files.

`tests/weights/test_families.py` proves that the files are read right.

theirs, model, params = pair("gpt2", seed=0)
"""

import tempfile
from typing import Any, NamedTuple

import numpy as np

from family_models import quiet
from glassformer.api.loading import read_model
from glassformer.core.tree import tree_map
from glassformer.models import Model
from oracles import require

VOCAB, CONTEXT = 13, 40
END, START = 1, 0
"""Ids that end an answer, and that start those of T5."""

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "vocab_size": VOCAB, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": CONTEXT, "bos_token_id": START,
        "eos_token_id": END,
    }),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {
        "vocab_size": VOCAB, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "intermediate_size": 24, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5,
        "bos_token_id": START, "eos_token_id": END,
    }),
    "t5": ("T5ForConditionalGeneration", "T5Config", {
        "vocab_size": VOCAB, "d_model": 16, "num_heads": 2, "d_kv": 8, "num_layers": 2, "d_ff": 24, "eos_token_id": END,
        "pad_token_id": START, "decoder_start_token_id": START,
    }),
}  # fmt: skip


class Pair(NamedTuple):
    theirs: Any
    model: Model
    params: Any


def pair(family: str, *, seed: int = 0, dtype: str = "float64") -> Pair:
    """A model of Hugging Face and ours, computing the same."""
    torch, transformers = require("torch"), require("transformers")
    kind, config, settings = FAMILIES[family]
    theirs = getattr(transformers, kind)(getattr(transformers, config)(**settings))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            # Far larger than at the start of training, so that answers differ and end at different lengths.
            mean, spread = (1.0, 0.2) if "norm" in name or "ln_" in name else (0.0, 0.5)
            weight.copy_(torch.tensor(mean + spread * rng.standard_normal(tuple(weight.shape))))
    theirs = theirs.to(torch.float32).eval()
    with quiet(), tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        read = read_model(folder)
        params = tree_map(lambda x: np.array(x, dtype), read.params)
    return Pair(theirs.to(getattr(torch, dtype)), read.model, params)
