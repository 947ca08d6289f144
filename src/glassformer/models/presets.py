"""Known models as data: a name, and the settings that make it.

Sizes are those of the published configurations (GPT-2: Radford et al. 2019; GPT-3: Brown et al. 2020; BERT: Devlin et
al. 2018; T5: Raffel et al. 2019; Llama 2 and 3, Mistral, Qwen2, SmolLM2: their model cards; the original Transformer:
Vaswani et al. 2017).
"""

from typing import Any

from ..config import TransformerConfig, config_from_dict
from ..core.settings import check_known

_ENCODER: dict[str, Any] = {"architecture": "encoder"}
_DECODER: dict[str, Any] = {"architecture": "decoder"}
_BOTH: dict[str, Any] = {"architecture": "encoder-decoder"}
_GPT = dict(_DECODER, vocab=50257, context=1024, activation="gelu_tanh", dropout=0.1, init_std=0.02)
_BERT = dict(
    _ENCODER, vocab=30522, context=512, norm_position="post", norm_eps=1e-12, embedding_norm=True, segments=2,
    head="tokens", head_bias=True, dropout=0.1, init_std=0.02,
)  # fmt: skip
_T5 = dict(
    _BOTH, vocab=32128, context=512, head_width=64, activation="relu", norm="rms", norm_eps=1e-6,
    positions="relative", attention_bias=False, feed_forward_bias=False, scale_scores=False, shared_embedding=True,
    tied_head=True, head_scale=True, dropout=0.1,
)  # fmt: skip
_LLAMA = dict(
    _DECODER, norm="rms", norm_eps=1e-5, activation="silu", gated=True, positions="rotary",
    attention_bias=False, feed_forward_bias=False, tied_head=False, init_std=0.02,
)  # fmt: skip
_LLAMA_3 = dict(_LLAMA, vocab=128256, kv_heads=8, rotary_base=500000.0)
_LLAMA_31_SCALING = {"factor": 8.0, "low_factor": 1.0, "high_factor": 4.0, "original_context": 8192}
_ORIGINAL = dict(_BOTH, norm_position="post", activation="relu", positions="sinusoidal", embedding_scale=True)

PRESETS: dict[str, dict[str, Any]] = {
    # Small reference models: one minute or less on a laptop.
    "blocks": dict(_ENCODER, vocab=64, width=64, heads=4, layers=6, context=16, head="none"),
    "majority": dict(_ENCODER, vocab=3, width=32, heads=4, layers=1, context=8, feed_forward=64, classes=3),
    "tiny-decoder": dict(_DECODER, vocab=100, width=32, heads=4, layers=2, context=64),
    "counting": dict(
        _DECODER, vocab=20, width=32, heads=4, layers=1, context=16, feed_forward=64, activation="relu",
        norm_position="post", feed_forward_bias=False, tied_head=False,
    ),
    "tiny-seq2seq": dict(_ORIGINAL, vocab=32, width=32, heads=4, layers=2, context=32, feed_forward=64, dropout=0.1),
    "shakespeare": dict(
        _DECODER, vocab=65, width=128, heads=4, layers=4, context=64, activation="gelu_tanh",
        attention_bias=False, feed_forward_bias=False, norm_bias=False, init_std=0.02,
    ),
    # Published models.
    "transformer-base": dict(
        _ORIGINAL, vocab=37000, width=512, heads=8, layers=6, context=1024, feed_forward=2048, attention_bias=False,
        shared_embedding=True, tied_head=True, dropout=0.1,
    ),
    "gpt2": dict(_GPT, width=768, heads=12, layers=12),
    "gpt2-medium": dict(_GPT, width=1024, heads=16, layers=24),
    "gpt2-large": dict(_GPT, width=1280, heads=20, layers=36),
    "gpt2-xl": dict(_GPT, width=1600, heads=25, layers=48),
    "gpt3": dict(_GPT, width=12288, heads=96, layers=96, context=2048),
    "bert-base": dict(_BERT, width=768, heads=12, layers=12),
    "bert-large": dict(_BERT, width=1024, heads=16, layers=24),
    "minilm": dict(_BERT, width=384, heads=12, layers=6, feed_forward=1536, head="none", head_bias=False),
    "t5-small": dict(_T5, width=512, heads=8, layers=6, feed_forward=2048),
    "t5-base": dict(_T5, width=768, heads=12, layers=12, feed_forward=3072),
    "t5-large": dict(_T5, width=1024, heads=16, layers=24, feed_forward=4096),
    "t5-v1.1-small": dict(
        _T5, width=512, heads=6, layers=8, feed_forward=1024, activation="gelu_tanh", gated=True, tied_head=False,
        head_scale=False,
    ),
    "llama-2-7b": dict(_LLAMA, vocab=32000, width=4096, heads=32, layers=32, context=4096, feed_forward=11008),
    "llama-3-8b": dict(_LLAMA_3, width=4096, heads=32, layers=32, context=8192, feed_forward=14336),
    "llama-3.1-8b": dict(
        _LLAMA_3, width=4096, heads=32, layers=32, context=131072, feed_forward=14336,
        rotary_scaling=_LLAMA_31_SCALING,
    ),
    "llama-3.1-70b": dict(
        _LLAMA_3, width=8192, heads=64, layers=80, context=131072, feed_forward=28672,
        rotary_scaling=_LLAMA_31_SCALING,
    ),
    "llama-3.2-1b": dict(
        _LLAMA_3, width=2048, heads=32, layers=16, context=131072, feed_forward=8192,
        rotary_scaling={**_LLAMA_31_SCALING, "factor": 32.0}, tied_head=True,
    ),
    "mistral-7b": dict(
        _LLAMA, vocab=32000, width=4096, heads=32, kv_heads=8, layers=32, context=32768, feed_forward=14336,
        window=4096,
    ),
    "qwen2-0.5b": dict(
        _LLAMA, vocab=151936, width=896, heads=14, kv_heads=2, layers=24, context=131072, feed_forward=4864,
        norm_eps=1e-6, rotary_base=1000000.0, attention_bias=True, output_bias=False, tied_head=True,
    ),
    "smollm2-135m": dict(
        _LLAMA, vocab=49152, width=576, heads=9, kv_heads=3, layers=30, context=8192, feed_forward=1536,
        rotary_base=100000.0, tied_head=True,
    ),
}  # fmt: skip


def preset(name: str, **changes: Any) -> TransformerConfig:
    """Return the config of a known model, with some settings changed."""
    check_known("there is no preset", name, PRESETS, listed="`glassformer models` lists them")
    return config_from_dict({**PRESETS[name], **changes})
