"""Small models to fine-tune: folders as Hugging Face publishes them, and what they are taught."""

import json
from pathlib import Path
from typing import Any

from family_models import quiet
from oracles import require
from tokenizer_files import PUBLISHED

VOCAB = 512
"""More than their tokenizers have, as published vocabularies are padded."""

_GPT2 = {"vocab_size": VOCAB, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 48}
_LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 24, "max_position_embeddings": 48, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_T5 = {
    "vocab_size": VOCAB, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "eos_token_id": 1,
    "decoder_start_token_id": 0, "n_positions": 48,
}  # fmt: skip
_BERT = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 24,
}  # fmt: skip
KINDS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2 | {"bos_token_id": 0, "eos_token_id": 0}, "byte-level BPE"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA, "sentencepiece BPE"),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5, "Unigram"),
    "bert": ("BertForMaskedLM", "BertConfig", _BERT, "WordPiece"),
}


def published(kind: str, folder: Path, *, seed: int = 0, tokenizer: bool = True) -> Path:
    """Write a model with random weights, and its tokenizer, into a folder."""
    torch, transformers = require("torch"), require("transformers")
    model, config, settings, name = KINDS[kind]
    torch.manual_seed(seed)
    with quiet():
        made = getattr(transformers, model)(getattr(transformers, config)(**settings))
        made.to(torch.float32).save_pretrained(folder)
    if tokenizer:
        make, roles = PUBLISHED[name]
        made = make()
        made.no_truncation()
        made.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    return folder


def sentence_encoder(folder: Path) -> Path:
    """Write an encoder that pools by the mean and normalizes."""
    published("bert", folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    steps = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder
