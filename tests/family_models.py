"""Small models of `transformers` of every family we read, with random weights, and what they compute exactly.

model = model_of("gpt2")
run(exact_copy(model), ids, exact=True)        the output of every block and the logits, in real float64
"""

import contextlib
import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from oracles import require

VOCAB, CONTEXT = 47, 96
END, START = 1, 0

_BERT = {
    "vocab_size": VOCAB, "hidden_size": 30, "num_attention_heads": 3, "num_hidden_layers": 3, "intermediate_size": 37,
    "max_position_embeddings": CONTEXT,
}  # fmt: skip
_ENDS = {"bos_token_id": START, "eos_token_id": END}
_GPT2 = {"vocab_size": VOCAB, "n_embd": 30, "n_head": 3, "n_layer": 3, "n_positions": CONTEXT, **_ENDS}
_NEOX = {
    **_BERT, **_ENDS, "num_attention_heads": 5, "use_parallel_residual": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 1.0},
}  # fmt: skip
_LLAMA = {**_BERT, **_ENDS, "num_attention_heads": 5}
_T5 = {
    "vocab_size": VOCAB, "d_model": 30, "d_kv": 7, "d_ff": 37, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3,
    "eos_token_id": END, "decoder_start_token_id": START,
}  # fmt: skip
_ROPE = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_LABELS = {"id2label": {0: "no", 1: "maybe", 2: "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
_EURO = {**_LLAMA, **_LABELS, "pad_token_id": 2, "classifier_pooling": "mean"}
_DISTIL = {
    "vocab_size": VOCAB, "dim": 30, "n_heads": 3, "n_layers": 3, "hidden_dim": 37, "max_position_embeddings": CONTEXT,
}  # fmt: skip
_GPT2_MODEL, _NEOX_MODEL = ("GPT2LMHeadModel", "GPT2Config"), ("GPTNeoXForCausalLM", "GPTNeoXConfig")
_LLAMA_MODEL, _T5_MODEL = ("LlamaForCausalLM", "LlamaConfig"), ("T5ForConditionalGeneration", "T5Config")
_MISTRAL_MODEL, _QWEN_MODEL = ("MistralForCausalLM", "MistralConfig"), ("Qwen2ForCausalLM", "Qwen2Config")

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": (*_GPT2_MODEL, {**_GPT2, "n_inner": 37}),
    "gpt2, untied, exact gelu": (*_GPT2_MODEL, {**_GPT2, "tie_word_embeddings": False, "activation_function": "gelu"}),
    "gpt2, scores not scaled": (*_GPT2_MODEL, {**_GPT2, "n_head": 10, "scale_attn_weights": False}),
    "gpt_neox": (*_NEOX_MODEL, _NEOX),
    "gpt_neox, as Pythia": (
        *_NEOX_MODEL,
        {**_NEOX, "hidden_size": 40, "use_parallel_residual": True, "rope_parameters": {"partial_rotary_factor": 0.25}},
    ),
    "gpt_neox, tied, no biases of attention": (
        *_NEOX_MODEL,
        {**_NEOX, "tie_word_embeddings": True, "attention_bias": False, "hidden_act": "gelu_new"},
    ),
    "bert, tokens": ("BertForMaskedLM", "BertConfig", _BERT),
    "bert, tokens, untied": (
        "BertForMaskedLM",
        "BertConfig",
        {**_BERT, "tie_word_embeddings": False, "hidden_act": "relu"},
    ),
    "bert, pretraining": ("BertForPreTraining", "BertConfig", _BERT),
    "bert": ("BertModel", "BertConfig", {**_BERT, "type_vocab_size": 3}),
    "distilbert, tokens": ("DistilBertForMaskedLM", "DistilBertConfig", _DISTIL),
    "distilbert": ("DistilBertModel", "DistilBertConfig", {**_DISTIL, "sinusoidal_pos_embds": True}),
    "distilbert, classes": ("DistilBertForSequenceClassification", "DistilBertConfig", {**_DISTIL, **_LABELS}),
    "eurobert": ("EuroBertModel", "EuroBertConfig", {**_LLAMA, "pad_token_id": 2, "num_key_value_heads": 1}),
    "eurobert, classes": ("EuroBertForSequenceClassification", "EuroBertConfig", _EURO),
    "eurobert, classes, first, biases": (
        "EuroBertForSequenceClassification",
        "EuroBertConfig",
        {**_EURO, "classifier_pooling": "bos", "attention_bias": True, "mlp_bias": True, "head_dim": 8},
    ),
    "roberta, tokens": ("RobertaForMaskedLM", "RobertaConfig", {**_BERT, "type_vocab_size": 1}),
    "roberta, tokens, untied": ("RobertaForMaskedLM", "RobertaConfig", {**_BERT, "tie_word_embeddings": False}),
    "roberta": ("RobertaModel", "RobertaConfig", {**_BERT, "layer_norm_eps": 1e-5}),
    "t5": (*_T5_MODEL, _T5),
    "t5 v1.1": (*_T5_MODEL, {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "llama": (*_LLAMA_MODEL, {**_LLAMA, "num_key_value_heads": 1}),
    "llama, tied, biases, scaled rotation": (
        *_LLAMA_MODEL,
        {
            **_LLAMA,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 8,
            "rope_parameters": _ROPE,
        },
    ),
    "mistral": (*_MISTRAL_MODEL, {**_LLAMA, "num_key_value_heads": 5, "head_dim": 6, "sliding_window": 11}),
    "mistral, no window": (*_MISTRAL_MODEL, {**_LLAMA, "num_key_value_heads": 1, "sliding_window": None}),
    "qwen2": (*_QWEN_MODEL, {**_LLAMA, "num_key_value_heads": 1, "rms_norm_eps": 1e-5}),
    "qwen2, tied, window": (
        *_QWEN_MODEL,
        {
            **_LLAMA,
            "num_key_value_heads": 5,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 0,
        },
    ),
}
"""The published class, its config, and what is odd about it."""
WRITERS = [
    name for name in CASES if name.split(",")[0].split()[0] in ("gpt2", "gpt_neox", "t5", "llama", "mistral", "qwen2")
]

_BLOCKS = {"gpt2": "h", "bert": "encoder.layer", "roberta": "encoder.layer", "distilbert": "transformer.layer"}


def model_of(name: str, *, seed: int = 0) -> Any:
    """A model in float32 whose weights are far larger than at the start of training, so that layers matter."""
    torch, transformers = require("torch"), require("transformers")
    kind, config, settings = CASES[name]
    with quiet():
        model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).to(torch.float32).eval()
    if name == "t5 v1.1":  # the published ones have a head of their own, which this library's class ties
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
        model.all_tied_weights_keys.pop("lm_head.weight", None)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            mean, spread = (1.0, 0.2) if "norm" in weight_name.lower() or "ln_" in weight_name else (0.0, 0.18)
            if kind.startswith("T5") and weight_name.endswith(".q.weight"):
                spread /= np.sqrt(settings["d_kv"])  # its scores are not scaled, its queries are made small instead
            values = mean + spread * rng.standard_normal(tuple(weight.shape))
            weight.copy_(torch.tensor(values, dtype=torch.float32))
    return model


def saved(name: str, folder: Path, *, model: Any = None, **settings: Any) -> Path:
    """The folder of such a model, as `save_pretrained` writes it."""
    with quiet():
        (model_of(name) if model is None else model).save_pretrained(folder, **settings)
    return folder


def exact_copy(model: Any) -> Any:
    """The same model in real float64."""
    model = copy.deepcopy(model).double()
    with doubled():
        for module in model.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq = type(module)(config=model.config).inv_freq
    return model


def opened(folder: Path, kind: str) -> Any:
    """The model that `transformers` reads from a folder."""
    with quiet():
        return getattr(require("transformers"), kind).from_pretrained(folder, dtype=require("torch").float32).eval()


def run(model: Any, ids: np.ndarray, *, exact: bool = False) -> dict[str, np.ndarray]:
    """The output of every block and the logits (or vectors) for ids (B, T); T5 reads them on both sides."""
    torch = require("torch")
    seen: dict[str, np.ndarray] = {}
    hooks = []
    for prefix, blocks in _stacks(model).items():
        hooks += [
            block.register_forward_hook(
                lambda _, __, y, name=f"{prefix}blocks.{i}": seen.update(
                    {name: (y[0] if isinstance(y, tuple) else y).numpy()}
                )
            )
            for i, block in enumerate(blocks)
        ]
    tokens = torch.tensor(ids)
    more = {"decoder_input_ids": tokens} if model.config.model_type == "t5" else {}
    with torch.no_grad(), doubled() if exact else contextlib.nullcontext():
        output = model(input_ids=tokens, **more)
    for hook in hooks:
        hook.remove()
    return {**seen, "output": (output.logits if "logits" in output else output[0]).numpy()}


def _stacks(model: Any) -> dict[str, Any]:
    base, kind = model.base_model, model.config.model_type
    if kind == "t5":
        return {f"{name}.": base.get_submodule(f"{name}.block") for name in ("encoder", "decoder")}
    return {"": base.get_submodule(_BLOCKS.get(kind, "layers"))}


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """Let the places where `transformers` always computes in float32 (norms, rotations) compute in float64."""
    torch = require("torch")
    t5 = require("transformers").models.t5.modeling_t5.T5Attention
    buckets = t5.__dict__["_relative_position_bucket"]
    before = torch.float32, torch.float, torch.Tensor.float

    def as_published(*args: Any, **settings: Any) -> Any:
        """The borders of T5's buckets are those of float32: part of what the model is, not of how it rounds."""
        wide = torch.Tensor.float
        torch.Tensor.float = before[2]
        try:
            return buckets.__func__(*args, **settings)
        finally:
            torch.Tensor.float = wide

    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    t5._relative_position_bucket = staticmethod(as_published)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = before
        t5._relative_position_bucket = buckets


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars and reports."""
    talk = require("transformers").utils.logging
    before = talk.get_verbosity()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        talk.set_verbosity(before)
