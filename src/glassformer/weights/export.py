"""Models written as Hugging Face publishes them, so that `transformers` and others read them."""

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, WeightsError
from ..core.files import PARTIAL, explained, flush, flush_folder
from ..core.tree import flatten, rebuilt
from ..models import build
from ..models.model import Pooling
from ..text import ByteTokenizer, CharTokenizer, PublishedTokenizer
from ..text.published import BYTE_LETTERS, roles_of
from .families import FAMILIES
from .family import Family, Foreign, differences, joined
from .folder import CONFIG, GENERATION, MODULES
from .loaded_model import LoadedModel
from .tensors import SINGLE, write_tensors

KEEP = "keep the run folder itself: `glassformer predict`, `inspect` and, if it writes, `generate` read it"

PASSED_ON = 6.0
"""GELU returns numbers from here on as they are, in float32."""


def export_folder(loaded: LoadedModel, path: str | Path) -> list[Path]:
    """Write a model into a new folder and return its files.

    Reading them again gives the same bits; biases that the family has and the model has not are zeros. A tokenizer
    that has no published form is left out: then there is no tokenizer.json among the files. The folder is there with
    all of them, or not at all.
    """
    family, config = family_for(loaded.config, loaded.family)
    loaded = with_config(loaded, config)
    arrays = published_arrays(family, loaded)
    settings = {"architectures": [family.class_of(config)], "model_type": family.name}
    settings["dtype"] = next(iter(arrays.values())).dtype.name
    ids = {} if config.architecture == "encoder" else _ids(loaded)
    tokenizer = published_form(loaded.tokenizer)
    fields = {**family.config_fields(config), **ids}
    if loaded.labels:
        fields["id2label"] = {str(i): label for i, label in enumerate(loaded.labels)}
    if "id2label" in fields:
        fields["label2id"] = {label: int(i) for i, label in fields["id2label"].items()}
    if tokenizer is not None and "pad_token_id" in fields and fields["pad_token_id"] is None:
        fields["pad_token_id"] = tokenizer.role_id("pad")
    with complete_folder(path) as folder:
        write_tensors(folder / SINGLE, arrays, {"format": "pt"})
        _write(folder / CONFIG, {**settings, **fields})
        if ids:
            _write(folder / GENERATION, ids)
        if loaded.pooling is not None:
            _write_pooling(folder, loaded)
        if tokenizer is not None:
            template = tokenizer.chat_template if loaded.chat_template is None else loaded.chat_template
            form = PublishedTokenizer(tokenizer.to_dict()["json"], roles=tokenizer.roles, chat_template=template)
            form.save(folder, **_reading(config))
    return sorted(file for file in Path(path).rglob("*") if file.is_file())


def export_line(config: TransformerConfig, tokenizer: Any) -> str:
    """Return what a model will be exported as, or why it cannot be, to be read before it is trained."""
    try:
        family, config = family_for(config)
    except WeightsError as error:
        remedy = "" if error.hint == KEEP else f"; {error.hint}"
        return f"cannot be exported to transformers: {error.fact}{remedy}"
    without = "" if published_form(tokenizer) else f", without its tokenizer: {tokenizer.kind} has no published form"
    return f"exports to transformers as {family.class_of(config)}{without}"


@contextmanager
def complete_folder(path: str | Path) -> Iterator[Path]:
    """Give a folder to write into that gets its name, a new one, when all of it is on the disk."""
    folder = Path(path).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{path} exists already", hint="choose a new folder")
    partial = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with explained(Path(path), WeightsError):
            partial.mkdir(parents=True)
            yield partial
            for written in (*partial.rglob("*"), partial):
                flush(written)  # on the disk before the folder gets its name
            with suppress(FileNotFoundError):
                folder.rmdir()  # an empty one, which not every system replaces
            partial.rename(folder)
            flush_folder(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def with_config(loaded: LoadedModel, config: TransformerConfig) -> LoadedModel:
    """Return a model that computes the same with a config that `family_for` gave.

    If rotary pairs are other channels there, (i, i + C/2) or (2i, 2i + 1), the channels of queries and keys get another
    order, which changes no product of the two. A layer before the classes is one that changes nothing. Parameters that
    the model does not have otherwise are zeros.
    """
    if config == loaded.config:
        return loaded
    leaves, specs = flatten(loaded.params), build(config).specs()
    leaves = {name: repaired(name, array, loaded.config, config) for name, array in leaves.items()}
    if _is_layered(config) and not _is_layered(loaded.config):
        leaves |= _layer_without_effect(leaves)
    zeros = {name: np.zeros(spec.shape, np.float32) for name, spec in flatten(specs).items() if name not in leaves}
    return replace(loaded, config=config, params=rebuilt(specs, {**leaves, **zeros}))


def _layer_without_effect(leaves: Mapping[str, Array]) -> dict[str, Array]:
    """Return a layer before the classes that passes a vector on, and a classifier to which that makes no difference.

    What an RMS norm returns has at most √D times its gain in any feature, and so has a mean of it. With that added, and
    some more, all features are where GELU returns what it reads, up to rounding; the classes' biases take it back:

        x + c = gelu(x + c)      (x + c) w + (b − c w) = x w + b
    """
    wide = {name: np.asarray(leaves[name], np.float64) for name in ("final_norm.gamma", "classifier.w", "classifier.b")}
    gain = wide["final_norm.gamma"]
    added = np.abs(gain) * np.sqrt(len(gain)) + PASSED_ON
    changed = {
        "pooled_linear.w": np.eye(len(gain)),
        "pooled_linear.b": added,
        "classifier.b": wide["classifier.b"] - added @ wide["classifier.w"],
    }
    return {name: array.astype(np.asarray(leaves["classifier.b"]).dtype) for name, array in changed.items()}


def repaired(name: str, array: Array, config: TransformerConfig, other: TransformerConfig) -> Array:
    """Return a parameter of a config for another one: channels of queries and keys in the order of its rotary pairs."""
    turns = ".attention.query." in name or ".attention.key." in name
    if config.rotary_pairing == other.rotary_pairing or not turns:
        return array
    half = other.channels // 2
    pairs = (half, 2) if other.rotary_pairing == "halves" else (2, half)
    return np.asarray(array).reshape(*array.shape[:-1], -1, *pairs).swapaxes(-1, -2).reshape(array.shape)


def published_form(tokenizer: Any) -> PublishedTokenizer | None:
    """Return a tokenizer as a tokenizer.json holds it; None for one that has no such form.

    Our tokenizers of characters and bytes become a byte-pair encoding without any pairs.
    """
    if isinstance(tokenizer, PublishedTokenizer):
        return tokenizer
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    if isinstance(tokenizer, CharTokenizer):
        if any(0xD800 <= ord(character) < 0xE000 for character in tokenizer.characters):
            return None  # halves of characters have no UTF-8 form
        vocabulary = {name: i + len(tokenizer.specials) for i, name in enumerate(tokenizer.characters)}
        inner = Tokenizer(models.BPE({**tokenizer.specials, **vocabulary}, []))
        inner.decoder = decoders.Fuse()
    elif isinstance(tokenizer, ByteTokenizer):
        inner = Tokenizer(models.BPE({**BYTE_LETTERS, **tokenizer.specials}, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.decoder = decoders.ByteLevel()
    else:
        return None
    inner.add_special_tokens(list(tokenizer.specials))
    return PublishedTokenizer(inner.to_str(), roles=roles_of(tokenizer.specials))


def family_for(
    config: TransformerConfig,
    preferred: str = "",
    families: Mapping[str, Family] = FAMILIES,
    what: str = "published family",
) -> tuple[Family, TransformerConfig]:
    """Return the family that computes what a config asks for, and that config as the family has it.

    It may have other rotary pairs, biases where the model has none, and a layer before the classes. Settings that no
    family has are named.
    """
    order = [families[name] for name in (preferred, *families) if name in families]
    for candidate in (config, _completed(config)):
        for family in order:
            if not differences(family, _paired(candidate, family)):
                return family, _paired(candidate, family)
    same = {family.name: family for family in order if family.architecture == config.architecture}
    lacking = {name: differences(family, _paired(_completed(config), family)) for name, family in same.items()}
    nearest = min(lacking, key=lambda name: ("head" in lacking[name], len(lacking[name])))
    named = [f"{name}={getattr(config, name)!r}" if hasattr(config, name) else name for name in lacking[nearest]]
    raise WeightsError(
        f"no {what} computes this {config.architecture}; the nearest, {nearest}, cannot have {', '.join(named)}",
        hint=_remedy(config, lacking[nearest], families),
    )


def has_family(config: TransformerConfig, families: Mapping[str, Family] = FAMILIES) -> bool:
    """Return whether one of the families computes what a config asks for."""
    candidates = (config, _completed(config))
    return any(not differences(f, _paired(candidate, f)) for f in families.values() for candidate in candidates)


def _paired(config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return a config with the rotary pairs of a family."""
    pairing = family.fixed.get("rotary_pairing", "halves")
    return config.replace(rotary_pairing=pairing) if config.positions == "rotary" else config


def _completed(config: TransformerConfig) -> TransformerConfig:
    """Return a config with what can be without effect: biases beside layer norms, and a layer before the classes."""
    if config.norm == "layer":
        config = config.replace(attention_bias=True, output_bias=True, feed_forward_bias=True, norm_bias=True)
    is_bare = isinstance(config, EncoderConfig) and config.head == "classes" and not _is_layered(config)
    return config.replace(pooled_activation="gelu") if is_bare and config.has_final_norm else config


def _is_layered(config: TransformerConfig) -> bool:
    """Return whether a classifier has a layer before its classes."""
    return isinstance(config, EncoderConfig) and config.pooled_activation is not None


def _remedy(config: TransformerConfig, lacking: Mapping[str, Any], families: Mapping[str, Family]) -> str:
    """Return the hint that names the settings to train with, if with them a model can be written."""
    # What is None follows from the others.
    changes = {name: value for name, value in lacking.items() if getattr(config, name, None) is not None}
    try:
        known = lacking.keys() <= {f.name for f in fields(config)}
        possible = known and has_family(config.replace(**changes), families)
    except ConfigError:
        possible = False
    if not possible:
        return KEEP
    written = {name: value if isinstance(value, str) else json.dumps(value) for name, value in changes.items()}
    return "train with " + " ".join(f"--set {name}={value}" for name, value in written.items())


def published_arrays(family: Family, loaded: LoadedModel) -> dict[str, Array]:
    """Return all tensors under their published names, each in one piece."""
    leaves = flatten(loaded.params)
    groups: dict[str, list[tuple[Foreign, Array]]] = {}
    for ours, tensor in family.names(loaded.config).items():
        groups.setdefault(tensor.name, []).append((tensor, np.asarray(leaves[ours])))
    arrays = {name: joined(parts) for name, parts in groups.items()}
    arrays |= {parts[0][0].twin: arrays[name].copy() for name, parts in groups.items() if parts[0][0].twin}
    for name, shape in family.kept(loaded.config).items():
        kept = loaded.extras.get(name)
        arrays[name] = np.zeros(shape, dtype=np.float32) if kept is None else np.ascontiguousarray(kept)
    return arrays


def _ids(loaded: LoadedModel) -> dict[str, Any]:
    """Return which tokens begin and end what the model writes."""
    start, ends = loaded.start_id, list(loaded.end_ids)
    end = {"eos_token_id": ends if len(ends) > 1 else next(iter(ends), None)}
    if isinstance(loaded.config, EncoderDecoderConfig):
        return {**end, "decoder_start_token_id": start or 0, "pad_token_id": 0}
    begin = loaded.tokenizer.role_id("bos") if isinstance(loaded.tokenizer, PublishedTokenizer) else None
    return {"bos_token_id": start if begin is None else begin, **end}


def _reading(config: TransformerConfig) -> dict[str, Any]:
    """Return what transformers is to make of a text for an encoder: at most so many tokens, and which inputs."""
    if not isinstance(config, EncoderConfig):
        return {}
    kinds = ["token_type_ids"] if config.segments else []
    return {"model_max_length": config.context, "model_input_names": ["input_ids", *kinds, "attention_mask"]}


def _write_pooling(folder: Path, loaded: LoadedModel) -> None:
    """Write the steps of a sentence encoder."""
    pooling = loaded.pooling or Pooling()
    titles = {"": "Transformer", "1_Pooling": "Pooling", **({"2_Normalize": "Normalize"} if pooling.normalize else {})}
    steps = [
        {"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{title}"}
        for i, (name, title) in enumerate(titles.items())
    ]
    modes = {"pooling_mode_cls_token": pooling.kind == "first", "pooling_mode_mean_tokens": pooling.kind == "mean"}
    (folder / "1_Pooling").mkdir()
    _write(folder / "1_Pooling" / CONFIG, {"word_embedding_dimension": loaded.config.width, **modes})
    _write(folder / MODULES, steps)


def _write(path: Path, content: Tree) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
