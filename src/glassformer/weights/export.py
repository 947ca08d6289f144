"""Models written as Hugging Face publishes them, so that `transformers` and others read them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ..arrays import Array, Tree
from ..config import EncoderDecoderConfig, TransformerConfig
from ..errors import ConfigError, WeightsError
from ..files import explained
from ..models import build
from ..text import ByteTokenizer, CharTokenizer, PublishedTokenizer
from ..text.published import BYTE_LETTERS, ROLES, TOKENIZER
from ..tree import flatten, rebuilt
from .families import FAMILIES
from .family import Family, Tensor, differences
from .folder import CONFIG, GENERATION
from .loaded import Loaded, Pooling
from .sentence import MODULES
from .tensors import SINGLE


def export_folder(loaded: Loaded, path: str | Path) -> list[Path]:
    """Write a model into a new folder and return its files.

    Reading them again gives the same bits; biases that the family has and the model has not are zeros. A tokenizer
    that has no published form is left out: then there is no tokenizer.json among the files.
    """
    folder = Path(path)
    loaded = with_biases(with_halves(loaded))
    family = family_for(loaded.config, loaded.family)
    arrays = published_arrays(family, loaded)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists already", hint="choose a new folder")
    with explained(folder, WeightsError):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / SINGLE, metadata={"format": "pt"})
        _write(folder / CONFIG, _config(family, loaded, arrays))
        (folder / SINGLE).chmod((folder / CONFIG).stat().st_mode)  # else only its owner could read it
        if loaded.config.architecture != "encoder":
            _write(folder / GENERATION, _ids(loaded))
        if loaded.pooling is not None:
            _write_pooling(folder, loaded)
    tokenizer = published_form(loaded.tokenizer)
    if tokenizer is not None:
        template = tokenizer.chat_template if loaded.chat_template is None else loaded.chat_template
        PublishedTokenizer(tokenizer.to_dict()["json"], roles=tokenizer.roles, chat_template=template).save(folder)
    return sorted(file for file in folder.rglob("*") if file.is_file())


def with_halves(loaded: Loaded) -> Loaded:
    """Return a model whose rotary pairs are channels (i, i + C/2), as all published families have them.

    One with neighboring pairs (2i, 2i + 1) gets the channels of its queries and keys in another order, which changes
    no product of the two.
    """
    config = loaded.config
    if config.positions != "rotary" or config.rotary_pairing == "halves":
        return loaded
    leaves = flatten(loaded.params)
    for name, array in leaves.items():
        if ".attention.query." in name or ".attention.key." in name:
            pairs = np.asarray(array).reshape(*array.shape[:-1], -1, config.channels // 2, 2)
            leaves[name] = np.swapaxes(pairs, -1, -2).reshape(array.shape)
    params = rebuilt(loaded.model.specs(), leaves)
    return replace(loaded, config=config.replace(rotary_pairing="halves"), params=params)


def with_biases(loaded: Loaded) -> Loaded:
    """Return a model that computes the same with biases of zero, if there is a family for it then and not before."""
    config = loaded.config
    if config.norm != "layer" or _fits(config):
        return loaded
    full = config.replace(attention_bias=True, output_bias=True, feed_forward_bias=True, norm_bias=True)
    if not _fits(full):
        return loaded
    have, specs = flatten(loaded.params), build(full).specs()
    leaves = {
        name: have[name] if name in have else np.zeros(spec.shape, np.float32) for name, spec in flatten(specs).items()
    }
    return replace(loaded, config=full, params=rebuilt(specs, leaves))


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
    roles = {role: f"<{role}>" for role in ROLES if f"<{role}>" in tokenizer.specials}
    return PublishedTokenizer(inner.to_str(), roles=roles)


def has_tokenizer(files: list[Path]) -> bool:
    """Tell whether an export holds a tokenizer."""
    return any(file.name == TOKENIZER for file in files)


def family_for(config: TransformerConfig, preferred: str = "") -> Family:
    """Return the family that computes what a config asks for; name the settings that none of them has."""
    lacking = {name: differences(family, config) for name, family in FAMILIES.items()}
    for name in (preferred, *FAMILIES):
        if lacking.get(name) == []:
            return FAMILIES[name]
    same = {name: found for name, found in lacking.items() if FAMILIES[name].architecture == config.architecture}
    nearest = min(same, key=lambda name: len(same[name]))
    what = ", ".join(f"{name}={getattr(config, name)!r}" if hasattr(config, name) else name for name in same[nearest])
    raise WeightsError(
        f"no published family computes this {config.architecture}; the nearest, {nearest}, cannot have {what}",
        hint="train a model with other settings to export it: `glassformer params gpt2` shows those of a preset",
    )


def _fits(config: TransformerConfig) -> bool:
    return any(not differences(family, config) for family in FAMILIES.values())


def published_arrays(family: Family, loaded: Loaded) -> dict[str, Array]:
    """Return all tensors under their published names, each in one piece."""
    leaves = flatten(loaded.params)
    groups: dict[str, list[tuple[Tensor, Array]]] = {}
    for ours, tensor in family.names(loaded.config).items():
        groups.setdefault(tensor.name, []).append((tensor, np.asarray(leaves[ours])))
    arrays = {name: _joined(parts) for name, parts in groups.items()}
    arrays |= {parts[0][0].twin: arrays[name].copy() for name, parts in groups.items() if parts[0][0].twin}
    for name, shape in family.kept(loaded.config).items():
        kept = loaded.extras.get(name)
        arrays[name] = np.zeros(shape, dtype=np.float32) if kept is None else np.ascontiguousarray(kept)
    return arrays


def _joined(parts: list[tuple[Tensor, Array]]) -> Array:
    """Undo `Tensor.read`: put the parts of a fused matrix side by side, turn it, add the rows that are skipped."""
    first = parts[0][0]
    arrays = [array for _, array in sorted(parts, key=lambda part: part[0].part or (0, 1))]
    joined = np.concatenate(arrays, axis=-1) if len(arrays) > 1 else arrays[0]
    stored = joined.T if first.transposed else joined
    return np.ascontiguousarray(np.pad(stored, ((first.skipped, 0), (0, 0))) if first.skipped else stored)


def _config(family: Family, loaded: Loaded, arrays: dict[str, Array]) -> dict[str, Any]:
    dtype = next(iter(arrays.values())).dtype.name
    fields = {"architectures": [family.class_of(loaded.config)], "model_type": family.name, "dtype": dtype}
    ids = {} if loaded.config.architecture == "encoder" else _ids(loaded)
    return {**fields, **family.config_fields(loaded.config), **ids}


def _ids(loaded: Loaded) -> dict[str, Any]:
    """Return which tokens begin and end what the model writes."""
    start, ends = loaded.start_id, list(loaded.end_ids)
    end = {"eos_token_id": ends if len(ends) > 1 else next(iter(ends), None)}
    if isinstance(loaded.config, EncoderDecoderConfig):
        return {**end, "decoder_start_token_id": start or 0, "pad_token_id": 0}
    begin = loaded.tokenizer.role_id("bos") if isinstance(loaded.tokenizer, PublishedTokenizer) else None
    return {"bos_token_id": start if begin is None else begin, **end}


def _write_pooling(folder: Path, loaded: Loaded) -> None:
    """Write the steps of a sentence encoder."""
    pooling = loaded.pooling or Pooling()
    titles = {"": "Transformer", "1_Pooling": "Pooling", **({"2_Normalize": "Normalize"} if pooling.normalize else {})}
    steps = [
        {"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{title}"}
        for i, (name, title) in enumerate(titles.items())
    ]
    modes = {"cls_token": pooling.kind == "first", "mean_tokens": pooling.kind == "mean", "max_tokens": False}
    (folder / "1_Pooling").mkdir()
    chosen = {f"pooling_mode_{name}": is_chosen for name, is_chosen in modes.items()}
    _write(folder / "1_Pooling" / CONFIG, {"word_embedding_dimension": loaded.config.width, **chosen})
    _write(folder / MODULES, steps)


def _write(path: Path, content: Tree) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
