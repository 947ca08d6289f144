"""Models written as GGUF files, as llama.cpp reads them: settings, tokenizer and weights in one file.

gpt2       our decoders with learned positions and layer norms
gptneox    those with rotary positions and layer norms, such as `glassformer train text` makes
llama      those with rotary positions, RMS norms and gated feed-forward layers
qwen2      models of that family
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array
from ..config import DecoderConfig, TransformerConfig
from ..errors import ConfigError, WeightsError
from ..files import explained, replacing
from ..quantized import write_rows
from ..settings import check_known
from ..trained_model import TrainedModel
from ..tree import flatten, rebuilt
from .export import KEEP, biased, has_family, remedy, shown, with_halves, with_zeros
from .family import PublishedTensor, joined, published, unlike
from .fields import effective
from .gguf import FUSED, NAMES
from .gguf_config import FAMILIES, PARALLEL, ROTATIONS, SIZES, stretched
from .gguf_tokenizer import KEY, TEMPLATE
from .gguf_vocabulary import vocabulary_settings
from .gguf_write import write_gguf

TYPES = {"f32": 0, "f16": 1, "q8_0": 7}
"""How matrices are stored, each with the number that files have for it."""
SUFFIX = ".gguf"
_BLOCK = 32
_FIRST = {"gpt2": "gpt2", "gpt_neox": "gptneox", "llama": "llama", "mistral": "llama", "qwen2": "qwen2"}
_WITH_ALL_BIASES = ("gpt2", "gptneox")
# What a file says itself; all else, the architecture decides.
_TOLD = (
    "vocab", "width", "heads", "layers", "context", "feed_forward", "norm_eps", "tied_head", "attention_bias",
    "output_bias", "feed_forward_bias", "rotary_base",
)  # fmt: skip
_TOLD_OF_LLAMA = ("kv_heads", "head_width", "rotary_scaling")


def export_gguf(loaded: TrainedModel, path: str | Path, *, weights: str = "f32") -> Path:
    """Write a decoder into a new file and return its path.

    weights   of matrices: f32, f16, or q8_0: blocks of 32 numbers with one scale; those that do not fit stay in f16
    """
    check_known("there is no type of weights", weights, TYPES)
    path = Path(path)
    loaded = with_halves(loaded)
    architecture = architecture_for(loaded.config, loaded.family)
    if architecture in _WITH_ALL_BIASES:
        loaded = with_zeros(loaded, biased(loaded.config))
    settings = {f"{architecture}.{key}": value for key, value in _settings(architecture, loaded.config).items()}
    settings |= {KEY + key: value for key, value in vocabulary_settings(loaded).items()}
    template = loaded.chat_template or getattr(loaded.tokenizer, "chat_template", None)
    settings |= {} if template is None else {TEMPLATE: template}
    settings |= {"general.name": path.stem, "general.file_type": TYPES[weights], "general.quantization_version": 2}
    if path.exists():
        raise ConfigError(f"{path} exists already", hint="choose a new name")
    with explained(path, WeightsError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            tensors = {}
            for name, array in _tensors(architecture, loaded):
                form = _type_of(name, array, weights).upper()
                tensors[name] = form, array.shape, _stored(array, form)
            write_gguf(partial, {"general.architecture": architecture, **settings}, tensors)
    return path


def architecture_for(config: TransformerConfig, family: str = "") -> str:
    """Return the architecture of llama.cpp that computes what a config asks for; name the settings that none has."""
    if not isinstance(config, DecoderConfig):
        hint = "write a folder instead, with --format hf" if has_family(config) else KEEP
        raise WeightsError(
            f"only decoders are written into GGUF files, and this is an {config.architecture}", hint=hint
        )
    order = dict.fromkeys([*([_FIRST[family]] if family in _FIRST else []), "llama", "gpt2", "gptneox"])
    lacking = {name: _lacking(name, config) for name in order}
    for name, found in lacking.items():
        if not found:
            return name
    nearest = min(lacking, key=lambda name: len(lacking[name]))
    raise WeightsError(
        f"no architecture of llama.cpp computes this decoder; the nearest, {nearest}, cannot have "
        + shown(config, lacking[nearest]),
        hint=remedy(config, lacking[nearest], _fits),
    )


def _fits(config: TransformerConfig) -> bool:
    return any(not _lacking(name, config) for name in FAMILIES)


def _lacking(architecture: str, config: TransformerConfig) -> dict[str, Any]:
    """Return the settings that a file of this architecture has no word for, with the values it would give them."""
    told: tuple[str, ...] = (*_TOLD, *_TOLD_OF_LLAMA)
    if architecture in _WITH_ALL_BIASES:
        told, config = _TOLD, biased(config)
    if architecture == "gptneox" and config.block == "parallel":
        told = (*told, "block")
    settings = {name: effective(config, name) for name in told}
    settings |= {**FAMILIES[architecture], "rotary_pairing": "halves"}
    if settings.get("positions") != "rotary":
        settings = {name: value for name, value in settings.items() if not name.startswith("rotary_")}
    return unlike(DecoderConfig(**settings), config)


def _settings(architecture: str, config: TransformerConfig) -> dict[str, Any]:
    """Return the settings of a model, without the prefix of their names."""
    unsaid = {"attention.sliding_window"}
    if architecture in _WITH_ALL_BIASES:
        unsaid |= {"attention.head_count_kv", "attention.key_length"}
    found: dict[str, Any] = {key: effective(config, name) for key, name in SIZES.items() if key not in unsaid}
    eps = "attention.layer_norm_rms_epsilon" if config.norm == "rms" else "attention.layer_norm_epsilon"
    found[eps] = float(config.norm_eps)
    found["vocab_size"] = config.vocab
    if config.positions == "rotary":
        found |= {"rope.freq_base": float(config.rotary_base), "rope.dimension_count": config.channels}
    if "attention.key_length" in found:
        found["attention.value_length"] = config.channels
    return {**found, PARALLEL: config.block == "parallel"} if architecture == "gptneox" else found


def _tensors(architecture: str, loaded: TrainedModel) -> Iterator[tuple[str, Array]]:
    """Yield every tensor under its name, as (outputs, inputs)."""
    names = FUSED if architecture in _WITH_ALL_BIASES else NAMES
    config = loaded.config
    assert isinstance(config, DecoderConfig)
    params = with_neighbors(loaded).params if architecture == "llama" else loaded.params
    groups: dict[str, list[tuple[PublishedTensor, Array]]] = {}
    for ours, array in flatten(params).items():
        place = published(names, ours)
        groups.setdefault(place.name, []).append((place, np.asarray(array)))
    for name, parts in groups.items():
        yield name, joined(parts)
    if config.tied_head and architecture == "gptneox":
        # llama.cpp takes the table of tokens for the head of other architectures where there is none.
        yield "output.weight", np.asarray(loaded.params["embedding"]["tokens"]["table"])
    if config.positions == "rotary" and config.rotary_scaling is not None:
        yield ROTATIONS, stretched(config, config.rotary_scaling)


def with_neighbors(loaded: TrainedModel) -> TrainedModel:
    """Undo `with_halves`: the channels that turn together stand side by side, as llama.cpp has them for Llama."""
    leaves = flatten(loaded.params)
    for name, array in leaves.items():
        if ".attention.query." in name or ".attention.key." in name:
            halves = np.asarray(array).reshape(*array.shape[:-1], -1, 2, loaded.config.channels // 2)
            leaves[name] = np.swapaxes(halves, -1, -2).reshape(array.shape)
    config = loaded.config.replace(rotary_pairing="interleaved")
    return replace(loaded, config=config, params=rebuilt(loaded.model.specs(), leaves))


def _stored(array: Array, form: str) -> Array:
    """Return the bytes of a tensor."""
    numbers = np.ascontiguousarray(array, dtype=np.float32)
    if form == "F32":
        return numbers
    return write_rows(form, numbers.reshape(-1, numbers.shape[-1]))


def _type_of(name: str, array: Array, weights: str) -> str:
    """Return how a tensor is stored: vectors and positions in full, as llama.cpp wants them."""
    if array.ndim < 2 or name.startswith("position_embd"):
        return "f32"
    if np.abs(array).max(initial=0.0) > np.finfo(np.float16).max:
        return "f32"
    return "f16" if weights == "q8_0" and array.shape[-1] % _BLOCK else weights
