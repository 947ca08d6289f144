"""GGUF files, as llama.cpp reads them: one file with settings, tokenizer and weights, most often quantized.

gpt2       decoders with learned positions and layer norms
gptneox    those with rotary positions and layer norms, such as `glassformer train text` makes
llama      those with rotary positions, RMS norms and gated feed-forward layers
qwen2      models of that family

    model = open_gguf("SmolLM2-135M-Instruct.Q4_1.gguf")
    export_gguf(model, "again.gguf", weights="q8_0")
"""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ..config import DecoderConfig, RotaryScaling, TransformerConfig
from ..core.arrays import Array
from ..core.errors import ConfigError, WeightsError
from ..core.files import explained, replacing
from ..core.quantized import BLOCK, write_rows
from ..core.settings import check_known
from ..core.tree import tree_map
from ..ops import rotary_angles
from ..text import PublishedTokenizer
from .export import KEEP, family_for, has_family, published_arrays, with_config
from .family import Family, block_names, read_params
from .fields import Fields, naming
from .gguf_file import Header, read_header, write_gguf
from .gguf_tokenizer import TEMPLATE, read_tokenizer, vocabulary_settings
from .loaded_model import LoadedModel
from .tensors import Tensors

TYPES = {"f32": 0, "f16": 1, "q8_0": 7}
"""The types of stored matrices, each with the number that files have for it."""
SUFFIX = ".gguf"
ROTATIONS = "rope_freqs.weight"
"""A tensor that stretches the rotations, as Llama 3 does."""
_SIZES: dict[str, Any] = {
    "context": ("context_length", Fields.size),
    "width": ("embedding_length", Fields.size),
    "layers": ("block_count", Fields.layers),
    "feed_forward": ("feed_forward_length", Fields.size),
    "heads": ("attention.head_count", Fields.size),
}
_ONLY: dict[str, Any] = {
    "attention.causal": True, "expert_count": 0, "expert_used_count": 0, "rope.scaling.type": "none",
    "rope.scale_linear": 1.0, "rope.scaling.finetuned": False,
}  # fmt: skip
"""Settings that must have the one value that the layers compute with."""
_FOLLOWING = (
    "vocab_size", "attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.dimension_count",
    "rope.freq_base", "attention.sliding_window", "use_parallel_residual", "tensor_data_layout",
)  # fmt: skip
"""Settings that the tables below do not take but a file may have."""


# --- the architectures -----------------------------------------------------------------------------------------------


def _read(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Refuse settings that do not fit the others; add what a file says and none of the tables holds."""
    at = fields.get("general.architecture") + "."
    heads = settings["heads"]
    channels = settings.get("head_width") or settings["width"] // heads
    following = {"vocab_size": settings["vocab"], "attention.key_length": channels, "attention.value_length": channels}
    following["attention.head_count_kv"] = settings.get("kv_heads", heads)
    if settings.get("positions") == "rotary":
        following["rope.dimension_count"] = channels
    for key, expected in following.items():
        fields.only(at + key, expected)
    parallel = fields.flag(at + "use_parallel_residual", False)
    window = fields.optional_size(at + "attention.sliding_window")
    settings = {**settings, "block": "parallel" if parallel else "residual", "window": window}
    if ROTATIONS in fields.values:
        settings["rotary_scaling"] = _read_scaling(fields.values[ROTATIONS], channels, settings["rotary_base"])
    return settings


def _write(config: DecoderConfig, fields: dict[str, Any]) -> dict[str, Any]:
    at = fields["general.architecture"] + "."
    fields = {**fields, at + "vocab_size": config.vocab}
    if config.positions == "rotary":
        fields[at + "rope.dimension_count"] = config.channels
    if at == "gptneox.":
        fields[at + "use_parallel_residual"] = config.block == "parallel"
    if at + "attention.key_length" in fields:
        fields[at + "attention.value_length"] = config.channels
    if at == "llama." and config.rotary_scaling is not None:
        fields[ROTATIONS] = _stretched(config.channels, config.rotary_base, config.rotary_scaling)
    return fields


def _read_scaling(factors: Array, channels: int, base: float) -> RotaryScaling:
    """Return the scaling of rotations that the tensor `rope_freqs` stands for: by what each frequency is divided.

    The file keeps the result, not the rule. Llama 3.1 and later all follow one rule with one of a few factors, so the
    factor is read off the slowest rotation and the rule must then give all others.
    """
    largest = decimal(float(np.max(factors)))
    scaling = RotaryScaling(factor=largest if 1 <= largest < math.inf else 1.0)
    expected = _stretched(channels, base, scaling)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        fact = f"{ROTATIONS} stretches the rotations by a rule other than Llama 3's, which is not supported"
        raise WeightsError(fact, hint="use the same model as a Hugging Face folder, where its config names the rule")
    return scaling


def _stretched(channels: int, base: float, scaling: RotaryScaling) -> Array:
    """Return by what a scaling divides each frequency of the rotations."""
    angles = [rotary_angles(np.array(1), channels, base=base, scaling=each) for each in (None, scaling)]
    plain, slower = (np.arctan2(sin, cos) for cos, sin in angles)
    return (plain / slower).astype(np.float32)


def decimal(value: float) -> float:
    """Return the decimal that was stored in float32: 1e-5, not 9.99999974e-06."""
    return float(str(np.float32(value)))


def _architecture(name: str, fixed: dict[str, Any], *, fused: bool = False) -> Family:
    """Return how llama.cpp stores the models of an architecture; layers have their biases by `fixed`, or as tensors."""
    at = name + "."
    attention = "attn_qkv attn_qkv attn_qkv" if fused else "attn_q attn_k attn_v"
    eps = "attention.layer_norm_rms_epsilon" if fixed.get("norm") == "rms" else "attention.layer_norm_epsilon"
    fields: dict[str, Any] = {ours: (at + key, ask) for ours, (key, ask) in _SIZES.items()}
    fields["norm_eps"] = (at + eps, Fields.number)
    # What only the tensors tell has the name of the setting.
    fields |= {"vocab": ("vocab", Fields.size), "tied_head": ("tied_head", Fields.flag, True)}
    if fixed.get("positions") == "rotary":
        fields["rotary_base"] = (at + "rope.freq_base", Fields.number, 10000.0)
    if not fused:
        count = fields["heads"][0]
        fields["kv_heads"] = (at + "attention.head_count_kv", Fields.size, lambda header: header.size(count))
        fields["head_width"] = (at + "attention.key_length", Fields.optional_size)
        biases = ("attention_bias", "output_bias", "feed_forward_bias")
        fields |= {bias: (bias, Fields.flag, False) for bias in biases if bias not in fixed}
    return Family(
        name=name,
        classes={name: "tokens"},
        prefix="",
        table={
            "embedding.tokens": "token_embd",
            "embedding.positions": "position_embd",
            **block_names("blk.*", f"attn_norm {attention} attn_output", "ffn_norm ffn_up ffn_down ffn_gate"),
            "final_norm": "output_norm",
            "head": "output",
        },
        fields=fields,
        fixed=fixed,
        only=tuple((at + key, allowed) for key, allowed in _ONLY.items()),
        written={"general.architecture": name},
        read=_read,
        write=_write,
        ignored=(ROTATIONS.replace(".", r"\."),),
    )


_LLAMA = {"norm": "rms", "activation": "silu", "gated": True, "positions": "rotary"}
ARCHITECTURES = {
    family.name: family
    for family in (
        # llama.cpp stores the queries and keys of Llama so that the two channels that turn as a pair are neighbors.
        _architecture("llama", {**_LLAMA, "rotary_pairing": "interleaved"}),
        _architecture("gpt2", {"activation": "gelu_tanh"}, fused=True),
        _architecture("gptneox", {"activation": "gelu_tanh", "positions": "rotary"}, fused=True),
        _architecture("qwen2", {**_LLAMA, "output_bias": False, "feed_forward_bias": False}),
    )
}

# --- reading ---------------------------------------------------------------------------------------------------------


def open_gguf(path: str | Path, dtype: Any = np.float32, *, kept: Collection[str] = ()) -> LoadedModel:
    """Read a model from a GGUF file.

    Tensors that are stored in `dtype` stay in the file and are mapped into memory; quantized ones are turned into it,
    but for matrices of the types that are to be `kept` (see `quantized.FORMS`).
    """
    header = read_header(path)
    with naming(path):
        family, config = _described(header)
        config, params, _ = read_params(family, config, Tensors(header.tensors, kept), np.dtype(dtype))
        if kept:
            # Vectors are views of the file, which would keep all of it in memory.
            params = tree_map(lambda leaf: np.array(leaf) if leaf.ndim == 1 else leaf, params)
        tokenizer, start_id, end_ids = read_tokenizer(header.settings, vocab=config.vocab)
    return LoadedModel(
        config=config,
        params=params,
        family=family.name,
        tokenizer=tokenizer,
        start_id=start_id,
        end_ids=end_ids,
        chat_template=tokenizer.chat_template,
        source=str(path),
    )


def read_parts(path: Path) -> tuple[PublishedTokenizer, TransformerConfig]:
    """Return the tokenizer and the config of a GGUF file, without its weights."""
    header = read_header(path)
    with naming(path):
        _, config = _described(header)
        return read_tokenizer(header.settings, vocab=config.vocab)[0], config


def _described(header: Header) -> tuple[Family, TransformerConfig]:
    """Return the architecture of a model and its config; refuse a setting that is not supported."""
    name, parts = header.settings.get("general.architecture"), header.settings.get("split.count", 0)
    if not isinstance(name, str) or name not in ARCHITECTURES:
        fact = f"the architecture {name!r:.80} is not supported"
        raise WeightsError(fact, hint=f"known: {', '.join(ARCHITECTURES)}")
    if type(parts) is not int or parts not in (0, 1):
        hint = "join the parts with llama-gguf-split --merge"
        raise WeightsError("this file is one part of a split model", hint=hint)
    family, table = ARCHITECTURES[name], header.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise WeightsError("the file holds no token_embd.weight, the table of tokens", hint="it is not a whole model")
    known = {row[0] for row in (*family.fields.values(), *family.only)} | {f"{name}.{key}" for key in _FOLLOWING}
    values = {key: _plain(value) for key, value in header.settings.items() if key.partition(".")[0] == name}
    for key in values.keys() - known:
        raise WeightsError(f"the setting {key}, here {values[key]!r:.40}, is not supported", hint="use another model")
    values |= {
        "general.architecture": name,
        "vocab": table.shape[0],
        "tied_head": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "output_bias": "blk.0.attn_output.bias" in header.tensors,
        "feed_forward_bias": "blk.0.ffn_up.bias" in header.tensors,
    }
    if name == "llama" and ROTATIONS in header.tensors:
        values[ROTATIONS] = Tensors(header.tensors).read(ROTATIONS)
    return family, family.config(Fields(values, "its header"), "tokens")


def _plain(value: Any) -> Any:
    """Return a setting; one number for each layer will do when all are the same."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list) and value and all(number == value[0] for number in value):
        value = value[0]
    return decimal(value) if isinstance(value, float) else value


# --- writing ---------------------------------------------------------------------------------------------------------


def export_gguf(loaded: LoadedModel, path: str | Path, *, weights: str = "f32") -> Path:
    """Write a decoder into a new file and return its path.

    weights   of matrices: f32, f16, or q8_0: blocks of 32 numbers with one scale; those that do not fit stay in f16
    """
    check_known("there is no type of weights", weights, TYPES)
    path = Path(path)
    family, config = architecture_for(loaded.config, loaded.family)
    loaded = with_config(loaded, config)
    fields, arrays = family.config_fields(config), published_arrays(family, loaded)
    settings: dict[str, Any] = {"general.architecture": family.name}
    settings |= {key: value for key, value in fields.items() if key.startswith(family.name + ".")}
    settings |= vocabulary_settings(loaded)
    template = loaded.chat_template or getattr(loaded.tokenizer, "chat_template", None)
    settings |= {} if template is None else {TEMPLATE: template}
    settings |= {"general.name": path.stem, "general.file_type": TYPES[weights], "general.quantization_version": 2}
    if ROTATIONS in fields:
        arrays[ROTATIONS] = fields[ROTATIONS]
    if family.name == "gptneox" and config.tied_head:
        # llama.cpp takes the table of tokens for the head of other architectures where there is none.
        arrays["output.weight"] = arrays["token_embd.weight"]
    if path.exists():
        raise ConfigError(f"{path} exists already", hint="choose a new name")
    with explained(path, WeightsError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            write_gguf(partial, settings, {name: _stored(name, array, weights) for name, array in arrays.items()})
    return path


def architecture_for(config: TransformerConfig, family: str = "") -> tuple[Family, TransformerConfig]:
    """Return the architecture of llama.cpp that computes what a config asks for, and that config as it has it."""
    if not isinstance(config, DecoderConfig):
        hint = "write a folder instead, with --format hf" if has_family(config) else KEEP
        raise WeightsError(
            f"only decoders are written into GGUF files, and this is an {config.architecture}", hint=hint
        )
    return family_for(config, family, ARCHITECTURES, "architecture of llama.cpp")


def _stored(name: str, array: Array, weights: str) -> tuple[str, tuple[int, ...], Array]:
    """Return the type, shape and bytes of a tensor: vectors and positions in full, as llama.cpp wants them."""
    numbers = np.ascontiguousarray(array, dtype=np.float32)
    vector = array.ndim < 2 or name.startswith("position_embd")
    if weights == "f32" or vector or np.abs(array).max(initial=0.0) > np.finfo(np.float16).max:
        return "F32", array.shape, numbers
    form = "F16" if weights == "q8_0" and array.shape[-1] % BLOCK else weights.upper()
    return form, array.shape, write_rows(form, numbers.reshape(-1, numbers.shape[-1]))
