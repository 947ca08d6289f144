"""LoRA adapters as PEFT writes them: a folder with adapter_config.json and adapter_model.safetensors.

    w′ = w + s · B A      A (rank, I) and B (O, rank), the transposes of our a and b

PEFT calls matrices by the modules of `transformers`, which the tables of `weights.families` translate. The parts of a
fused module share A and split B among them. Written together, their adapters stand side by side:

    A = [a₁ a₂ …]ᵀ        B = diag(b₁, b₂, …)ᵀ        so the rank is the sum of theirs
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config import EncoderConfig, TransformerConfig
from ..core.arrays import Array, Tree, widen
from ..core.errors import ConfigError, WeightsError, some
from ..core.tree import flatten, tree_map, unflatten
from ..weights.export import complete_folder, family_for, repaired
from ..weights.family import Family, Foreign, joined
from ..weights.fields import read_json
from ..weights.loaded_model import LoadedModel
from ..weights.sentence import without_head
from ..weights.stores import ADAPTER, hub_name
from ..weights.tensors import Tensors, read_header, write_tensors
from .trainable import LoRA, Parametrization, pairs_of

WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_ONLY: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),  # others change the weights beside them
}
_WITHOUT = ("use_dora", "modules_to_save", "lora_bias", "use_qalora", "layer_replication", "target_parameters",
            "trainable_token_indices", "alora_invocation_tokens", "arrow_config")  # fmt: skip
"""Settings of PEFT that change what an adapter computes, with the values that are supported; or none at all."""


@dataclass(frozen=True, eq=False)
class Adapter:
    """Adapters that were merged into a model: their settings, their matrices, their base, and a sum of the result."""

    lora: LoRA
    pairs: Tree
    base: str
    total: float
    parts: tuple[str, ...] = ()  # of the model that were trained beside them

    @classmethod
    def of(cls, parametrization: Parametrization, trained: Tree, params: Tree) -> "Adapter | None":
        """Describe the adapters that made `params` of what was trained; None where there are none."""
        if parametrization.lora is None:
            return None
        return cls(
            parametrization.lora, trained, parametrization.source, _total(trained, params), parametrization.parts
        )


def _total(pairs: Tree, params: Tree) -> float:
    weights = flatten(params)
    return float(sum(np.abs(np.asarray(weights[name])).sum(dtype=np.float64) for name in pairs_of(pairs)))


def _modules(model: LoadedModel) -> tuple[Family, TransformerConfig, dict[str, tuple[str, Foreign]]]:
    """Return the family of a model, its config there, and the published module of each linear map by our name."""
    config = model.config
    if isinstance(config, EncoderConfig) and config.head == "classes":  # which stands beside the published model
        config = without_head(config)
    family, config = family_for(config, model.family)
    names = {ours: tensor for ours, tensor in family.names(config).items() if ours.endswith(".w")}
    return family, config, {ours: (tensor.name.removesuffix(".weight"), tensor) for ours, tensor in names.items()}


# --- writing ---------------------------------------------------------------------------------------------------------


def export_adapter(model: LoadedModel, path: str | Path) -> list[Path]:
    """Write the adapters that a model was trained with into a new folder, and return its files."""
    adapter: Adapter | None = model.adapter
    if adapter is None:
        raise ConfigError(
            "this model has no adapters: it was not trained with LoRA, or it was saved with them merged",
            hint="export a run that was trained with --lora, or what gf.train(…, lora=8) returned",
        )
    if _total(adapter.pairs, model.params) != adapter.total:
        fact = "the parameters were changed after the adapters had been merged, so the adapters alone lack the change"
        raise ConfigError(fact, hint="export the whole model: leave out the format peft")
    if adapter.parts:
        fact = f"a new {' and '.join(adapter.parts)} was trained beside the adapters, which PEFT has no place for"
        raise ConfigError(fact, hint="keep the run folder, or write the whole model: gf.save(model, folder)")
    family, config, modules = _modules(model)
    groups: dict[str, list[tuple[Foreign, Array, Array]]] = {}
    for ours, (a, b) in pairs_of(adapter.pairs).items():
        if ours not in modules:
            hint = "train without this target, or export the whole model"
            raise WeightsError(f"{ours} is no linear map of a {family.name} model, so PEFT cannot adapt it", hint=hint)
        module, tensor = modules[ours]
        b = repaired(ours, np.asarray(b), model.config, config)
        groups.setdefault(module, []).append((tensor, np.asarray(a), b))
    fused = {module: _fused(parts) for module, parts in groups.items()}
    halves = {f"{_PREFIX}{m}.lora_{n}.weight": x for m, pair in fused.items() for n, x in zip("AB", pair, strict=True)}
    with complete_folder(path) as folder:
        write_tensors(folder / WEIGHTS, {n: np.ascontiguousarray(x.T) for n, x in halves.items()}, {"format": "pt"})
        content = _settings(adapter, family, {module: a.shape[-1] for module, (a, _) in fused.items()})
        (folder / ADAPTER).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return [Path(path) / ADAPTER, Path(path) / WEIGHTS]


def _fused(parts: list[tuple[Foreign, Array, Array]]) -> tuple[Array, Array]:
    """Return the one adapter of a module, (I, rank) and (rank, O), from those of its parts."""
    first, a, b = parts[0]
    if first.part is None:
        return a, b
    ends = np.cumsum([len(rows) for _, _, rows in parts]).tolist()
    blocks: Any = [np.zeros((ends[-1], b.shape[-1]), b.dtype) for _ in range(first.part[1])]
    for (tensor, _, rows), end in zip(parts, ends, strict=True):
        blocks[(tensor.part or (0,))[0]][end - len(rows) : end] = rows
    places = [replace(first, part=(i, len(blocks)), transposed=False) for i in range(len(blocks))]
    return np.concatenate([columns for _, columns, _ in parts], axis=-1), joined(list(zip(places, blocks, strict=True)))


def _settings(adapter: Adapter, family: Family, ranks: Mapping[str, int]) -> dict[str, Any]:
    """Return what adapter_config.json says."""
    rank, scale = min(ranks.values()), adapter.lora.scale
    others = {module: other for module, other in ranks.items() if other != rank}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if family.architecture == "decoder" else None,
        "base_model_name_or_path": hub_name(adapter.base),
        "r": rank,
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "target_modules": list(ranks),
        "rank_pattern": others,
        "alpha_pattern": {module: scale * other for module, other in others.items()},
        "bias": "none",
        "fan_in_fan_out": not family.transposed,
        "inference_mode": True,
    }


# --- reading ---------------------------------------------------------------------------------------------------------


def with_adapter(model: LoadedModel, folder: Path) -> LoadedModel:
    """Return a model with the adapters of a folder merged into its parameters, in float32 or wider."""
    content = read_json(folder / ADAPTER)
    _check(content, folder)
    family, config, modules = _modules(model)
    weights = flatten(model.params)
    places: dict[str, list[str]] = {}
    for ours, (module, _) in modules.items():
        places.setdefault(family.bare(module), []).append(ours)
    adapters: dict[str, tuple[Array, Array, float]] = {}
    for module, (a, b) in _stored(folder).items():
        owners = places.get(family.bare(module), [])
        base = f"use the model that it was trained with: {content.get('base_model_name_or_path')!s:.200}"
        if not owners:
            raise WeightsError(f"{folder} adapts {module}, which this {family.name} model does not have", hint=base)
        for ours in owners:
            ours_b = repaired(ours, replace(modules[ours][1], transposed=False).read(b), config, model.config)
            (rows, rank), (inner, columns) = a.shape, ours_b.shape
            if (rows, columns) != weights[ours].shape or rank != inner:
                fact = f"{folder} adapts {module} as a matrix of {rows} × {columns} with ranks {rank} and {inner}"
                raise WeightsError(f"{fact}, and that of the model has shape {weights[ours].shape}", hint=base)
            adapters[ours] = a, ours_b, _scale(content, module, rank)
    lora, pairs = _alike(adapters)
    params = lora.merge(tree_map(widen, model.params), pairs)
    return replace(model, params=params, adapter=Adapter(lora, pairs, model.source, _total(pairs, params)))


def _check(content: Mapping[str, Any], folder: Path) -> None:
    """Refuse what is no LoRA adapter, or one with parts that are not supported."""
    refused = [name for name in _WITHOUT if content.get(name)]
    refused += [name for name, allowed in _ONLY.items() if content.get(name) not in allowed]
    if refused:
        named = ", ".join(f"{name} = {json.dumps(content.get(name))[:60]}" for name in refused)
        raise WeightsError(
            f"{folder / ADAPTER} has {named}, which is not supported",
            hint="use LoRA on linear maps, without biases; or merge it with PEFT: "
            "model.merge_and_unload().save_pretrained(FOLDER)",
        )
    patterns = content.get("alpha_pattern") or {}
    numbers = [content.get("lora_alpha"), *(patterns.values() if isinstance(patterns, dict) else [None])]
    if any(type(number) not in (int, float) or not math.isfinite(number) for number in numbers):
        raise WeightsError(f"{folder / ADAPTER} is damaged: lora_alpha is no number", hint="get the file again")


def _stored(folder: Path) -> dict[str, tuple[Array, Array]]:
    """Return a (I, rank) and b (rank, O) by the name of the module."""
    if not (folder / WEIGHTS).is_file():
        raise WeightsError(f"{folder} has no {WEIGHTS}", hint="save the adapter again with PEFT, as safetensors")
    tensors = Tensors(read_header(folder / WEIGHTS))
    halves: dict[str, dict[str, Array]] = {}
    for name, entry in tensors.stored.items():
        match = re.fullmatch(r"(.+)\.lora_([AB])\.weight", name.removeprefix(_PREFIX))
        if match is None or len(entry.shape) != 2:
            fact = f"{folder / WEIGHTS} holds {name[:80]} {entry.shape}, which is no adapter of a linear map"
            raise WeightsError(fact, hint="merge it with PEFT instead: model.merge_and_unload()")
        halves.setdefault(match[1], {})[match[2]] = np.asarray(tensors.read(name)).T
    alone = sorted(module for module, pair in halves.items() if len(pair) < 2)
    if alone or not halves:
        fact = f"{folder / WEIGHTS} is damaged: it lacks one half of the adapters of {some(alone)}"
        raise WeightsError(fact if alone else f"{folder / WEIGHTS} holds no adapter", hint="get the file again")
    return {module: (pair["A"], pair["B"]) for module, pair in halves.items()}


def _scale(content: Mapping[str, Any], module: str, rank: int) -> float:
    patterns = content.get("alpha_pattern") or {}
    key = next((key for key in patterns if re.match(rf"(?:.*\.)?(?:{key})$", module)), None)
    alpha = content["lora_alpha"] if key is None else patterns[key]
    return alpha / (math.sqrt(rank) if content.get("use_rslora") else rank)


def _alike(adapters: Mapping[str, tuple[Array, Array, float]]) -> tuple[LoRA, Tree]:
    """Return adapters as those of one LoRA: of the largest rank, zeros beyond their own, and of the first scale."""
    rank, scale = max(a.shape[1] for a, _, _ in adapters.values()), next(iter(adapters.values()))[2]
    pairs = {}
    for name, (a, b, own_scale) in adapters.items():
        more = rank - a.shape[1]
        pairs[f"{name}.a"] = np.pad(a, ((0, 0), (0, more)))
        pairs[f"{name}.b"] = np.pad(b if own_scale == scale else b * np.float32(own_scale / scale), ((0, more), (0, 0)))
    return LoRA(rank=rank, alpha=scale * rank, targets=tuple(adapters)), unflatten(pairs)
