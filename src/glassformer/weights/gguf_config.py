"""The settings of a GGUF file as a config: one table of keys for each architecture that can be read."""

import math
from typing import Any

import numpy as np

from ..config import DecoderConfig, RotaryScaling
from ..errors import ConfigError, WeightsError
from ..ops import rotary_angles
from .gguf_header import Header

ROTATIONS = "rope_freqs.weight"
"""A tensor that stretches the rotations, as Llama 3 does."""

_LLAMA = {"norm": "rms", "activation": "silu", "gated": True, "positions": "rotary"}
FAMILIES: dict[str, dict[str, Any]] = {
    # llama.cpp stores the queries and keys of Llama so that the pairs that turn together stand side by side.
    "llama": {**_LLAMA, "rotary_pairing": "interleaved"},
    "qwen2": _LLAMA,
    "gpt2": {"activation": "gelu_tanh"},
    "gptneox": {"activation": "gelu_tanh", "positions": "rotary"},
}
"""What the architecture alone decides."""

SIZES = {
    "context_length": "context",
    "embedding_length": "width",
    "block_count": "layers",
    "feed_forward_length": "feed_forward",
    "attention.head_count": "heads",
    "attention.head_count_kv": "kv_heads",
    "attention.key_length": "head_width",
    "attention.sliding_window": "window",
}
_NUMBERS = {
    "attention.layer_norm_rms_epsilon": "norm_eps",
    "attention.layer_norm_epsilon": "norm_eps",
    "rope.freq_base": "rotary_base",
}
_NAMES = {**SIZES, **_NUMBERS}
_NEEDED = (*list(SIZES)[:5], "attention.layer_norm_rms_epsilon")
# Settings that must have the one value that the layers compute with, and those that say nothing about the model.
_FIXED: dict[str, Any] = {
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "rope.scaling.type": "none",
    "rope.scale_linear": 1.0,
    "rope.scaling.finetuned": False,
}
_CHECKED = {"rope.dimension_count", "attention.value_length", "vocab_size"}
PARALLEL = "use_parallel_residual"
_SILENT = {"tensor_data_layout"}
_OLD = "the file is damaged, or too old: convert the model again"


def read_config(header: Header) -> tuple[str, DecoderConfig]:
    """Return the family of a model and its config; refuse an architecture or a setting that is not supported."""
    architecture = header.settings.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in FAMILIES:
        fact = f"the architecture {architecture!r:.80} is not supported"
        raise WeightsError(fact, hint=f"known: {', '.join(FAMILIES)}")
    parts = header.settings.get("split.count", 0)
    if type(parts) is not int or parts not in (0, 1):
        hint = "join the parts with llama-gguf-split --merge"
        raise WeightsError("this file is one part of a split model", hint=hint)
    prefix = architecture + "."
    own = {key.removeprefix(prefix): value for key, value in header.settings.items() if key.startswith(prefix)}
    _check_known(own, prefix)
    settings = {**FAMILIES[architecture], **_read_settings(own, prefix), **_from_tensors(header)}
    if settings["layers"] > len(header.tensors):
        fact = f"{prefix}block_count is {settings['layers']:,}, but there are {len(header.tensors):,} tensors"
        raise WeightsError(fact, hint="the file is damaged: get it again")
    try:
        config = DecoderConfig(**settings)
    except ConfigError as error:
        raise WeightsError(f"its settings make no model: {error.fact}", hint=error.hint) from error
    _check_consistent(config, own, prefix)
    return architecture, config


def read_scaling(config: DecoderConfig, factors: Any) -> RotaryScaling:
    """Return the scaling of rotations that the tensor `rope_freqs` stands for: by what each frequency is divided.

    The file keeps the result, not the rule. Llama 3.1 and later all follow one rule with one of a few factors, so the
    factor is read off the slowest rotation and the rule must then give all others.
    """
    largest = float(np.max(factors))
    scaling = RotaryScaling(factor=largest if 1 <= largest < math.inf else 1.0)
    expected = stretched(config, scaling)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        fact = f"{ROTATIONS} stretches the rotations by a rule other than Llama 3's, which is not supported"
        raise WeightsError(fact, hint="use the same model as a Hugging Face folder, where its config names the rule")
    return scaling


def stretched(config: DecoderConfig, scaling: RotaryScaling) -> Any:
    """Return by what a scaling divides each frequency of the rotations."""
    return _frequencies(config, None) / _frequencies(config, scaling)


def _frequencies(config: DecoderConfig, scaling: RotaryScaling | None) -> Any:
    cos, sin = rotary_angles(np.array(1), config.channels, base=config.rotary_base, scaling=scaling)
    return np.arctan2(sin, cos)


def _count(key: str, value: Any) -> int:
    """Return a setting that must be a positive integer; one number for each layer will do when all are the same."""
    if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
        value = value[0].item()
    if isinstance(value, np.ndarray):
        raise _unsupported(f"{key} differs from layer to layer, which is not supported")
    if type(value) is not int or not 0 < value < 1 << 31:
        raise WeightsError(f"{key} is {value!r:.80}, expected a positive integer", hint="the file is damaged")
    return value


def _positive(key: str, value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
        raise WeightsError(f"{key} is {value!r:.80}, expected a positive number", hint="the file is damaged")
    # Stored in float32: 1e-5 comes back as the decimal it was written as, not as 9.99999974e-06.
    return float(str(np.float32(value)))


def _check_known(own: dict[str, Any], prefix: str) -> None:
    known = {*_NAMES, *_FIXED, *_CHECKED, *_SILENT, PARALLEL}
    for key, value in own.items():
        if key not in known:
            raise _unsupported(f"the setting {prefix}{key}, here {value!r:.40}, is not supported")
        if key in _FIXED and (isinstance(value, np.ndarray) or value != _FIXED[key]):
            raise _unsupported(f"{prefix}{key} is {value!r:.40}, but only {_FIXED[key]!r} is supported")


def _read_settings(own: dict[str, Any], prefix: str) -> dict[str, Any]:
    given = [key for key in _NAMES if key in own]
    found = {_NAMES[key]: (_count if key in SIZES else _positive)(prefix + key, own[key]) for key in given}
    for key in _NEEDED:
        if _NAMES[key] not in found:
            raise WeightsError(f"the setting {prefix}{key} is missing", hint=_OLD)
    parallel = own.get(PARALLEL, False)
    if not isinstance(parallel, bool):
        raise WeightsError(f"{prefix}{PARALLEL} is {parallel!r:.40}, no truth value", hint="the file is damaged")
    return {**found, "block": "parallel" if parallel else "residual"}


def _from_tensors(header: Header) -> dict[str, Any]:
    """Return what only the tensors tell: how many tokens there are, and which layers have biases."""
    table = header.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise WeightsError("the file holds no token_embd.weight, the table of tokens", hint="it is not a whole model")
    return {
        "vocab": table.shape[0],
        "tied_head": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors or "blk.0.attn_qkv.bias" in header.tensors,
        "output_bias": "blk.0.attn_output.bias" in header.tensors,
        "feed_forward_bias": "blk.0.ffn_up.bias" in header.tensors,
    }


def _check_consistent(config: DecoderConfig, own: dict[str, Any], prefix: str) -> None:
    wanted = {"vocab_size": config.vocab, "attention.value_length": config.channels}
    if config.positions == "rotary":
        wanted["rope.dimension_count"] = config.channels
    for key, expected in wanted.items():
        if key in own and _count(prefix + key, own[key]) != expected:
            raise _unsupported(f"{prefix}{key} is {own[key]!r:.40}, but only {expected} would fit the rest")


def _unsupported(fact: str) -> WeightsError:
    return WeightsError(fact, hint="use another model")
