"""Folders that `gf.save` writes: any model of any architecture, exactly as it is.

glassformer.json     the settings of the model, how it reads and writes text, what its classes are called, its task
model.safetensors    its parameters, under our own dotted names
tokenizer.json       its tokenizer, where it is a published one; those of our own stand in glassformer.json
metrics.jsonl        one line for every step of its training, where that is known

glassformer.json holds the SHA-256 of every file and of itself, so that damage is noticed; older ones hold none.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..config import TransformerConfig, config_from_dict
from ..core.arrays import Array
from ..core.documents import RESTORE, check_document, damaged, explaining_damage, write_document
from ..core.errors import ConfigError, GlassformerError, WeightsError
from ..core.files import explained, replacing, sha256_of, write_text
from ..core.quantized import Quantized
from ..core.registry import check_stored
from ..core.settings import fits
from ..core.tree import check_same, flatten, rebuilt
from ..data.task import is_task
from ..models import build
from ..models.model import Pooling
from ..text import PublishedTokenizer, tokenizer_from_dict
from ..text.published import CONFIG, TOKENIZER
from .fields import read_json
from .loaded_model import LoadedModel
from .tensors import SINGLE, open_tensors, write_tensors

DESCRIPTION = "glassformer.json"
METRICS = "metrics.jsonl"
FORMAT = 1
_AS_IT_IS: dict[str, Any] = {
    "family": str,
    "start_id": int | None,
    "end_ids": tuple[int, ...],
    "chat_template": str | None,
    "labels": tuple[str, ...],
}
"""Fields of a model that stand in its description as they are, with their types."""
_AGAIN = "save the model again"
_TOKENIZERS = ("tokenizer", "target_tokenizer")
_IN_FILE = {"kind": "file"}
_EXTRAS = "extras:"
"""Before the names of tensors that the model does not use."""


def is_saved(folder: Path) -> bool:
    """Return whether a folder is one of these."""
    return (folder / DESCRIPTION).is_file()


def save_folder(loaded: LoadedModel, path: str | Path) -> Path:
    """Write a model into a folder: a new one, an empty one, or one that holds a saved model, which is replaced."""
    folder = Path(path)
    if folder.exists() and not (folder.is_dir() and (is_saved(folder) or not any(folder.iterdir()))):
        raise ConfigError(f"{folder} exists already and holds no saved model", hint="choose a new folder")
    arrays = _arrays(loaded)
    about: dict[str, Any] = {"format": FORMAT, "model": loaded.config.to_dict(), "task": loaded.origin}
    about |= {name: getattr(loaded, name) for name in _AS_IT_IS}
    about |= {name: _stored(getattr(loaded, name), name) for name in _TOKENIZERS}
    about["pooling"] = None if loaded.pooling is None else asdict(loaded.pooling)
    with explained(folder, WeightsError):
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / SINGLE) as partial:
            write_tensors(partial, arrays, {"format": "np"})
        write_text(folder / METRICS, "".join(json.dumps(line) + "\n" for line in loaded.metrics))
        names = [SINGLE, METRICS]
        if isinstance(loaded.tokenizer, PublishedTokenizer):
            loaded.tokenizer.save(folder)
            names += [TOKENIZER, CONFIG]
        about["files"] = {name: sha256_of(folder / name) for name in names}
        write_document(folder / DESCRIPTION, about)
    return folder


def open_saved(folder: Path, dtype: Any = np.float32) -> LoadedModel:
    """Read a model that `save_folder` wrote; its weights stay in their file, mapped into memory."""
    content = _content(folder)
    hashes = content.get("files")
    for name, sha256 in hashes.items() if isinstance(hashes, dict) else ():
        path = folder / Path(str(name)).name
        with explained(path, WeightsError, RESTORE, "read"):
            digest = sha256_of(path)
        if digest != sha256:
            hint = f"{RESTORE}; to use an edited one, remove its line in {DESCRIPTION}, and sha256"
            raise damaged(path, f"its checksum is not the one in {DESCRIPTION}", hint, WeightsError)
    tensors = open_tensors(folder)
    config = read_saved_config(folder)
    specs = build(config).specs()
    names = [name for name in tensors.stored if not name.startswith(_EXTRAS)]
    check_same({name: tensors.stored[name] for name in names}, specs)
    with explaining_damage(f"{folder / DESCRIPTION} or {METRICS}", WeightsError, _AGAIN):
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines() if (folder / METRICS).is_file() else []
        settings: dict[str, Any] = {name: tuple(v) if isinstance(v := content[name], list) else v for name in _AS_IT_IS}
        wrong = [name for name, hint in _AS_IT_IS.items() if not fits(settings[name], hint, is_exact=True)]
        ids = [i for i in (settings["start_id"], *(() if wrong else settings["end_ids"])) if i is not None]
        if not wrong and not all(0 <= i < config.vocab for i in ids):
            raise ConfigError(f"of its start and end tokens {ids!r:.60}, some are not in the vocabulary")
        if wrong or not (content["task"] is None or is_task(content["task"])):
            name = (wrong or ["task"])[0]
            raise ConfigError(f"{name} is {content[name]!r:.60}")
        settings |= {name: _tokenizer(folder, content[name]) for name in _TOKENIZERS}
        return LoadedModel(
            config=config,
            params=rebuilt(specs, {name: tensors.read(name, dtype) for name in names}),
            pooling=None if content["pooling"] is None else Pooling(**content["pooling"]),
            source=str(folder),
            extras={n.removeprefix(_EXTRAS): tensors.read(n) for n in tensors.stored if n.startswith(_EXTRAS)},
            origin=content["task"],
            metrics=[json.loads(line) for line in lines],
            **settings,
        )


def read_saved_config(folder: Path) -> TransformerConfig:
    """Return the config of a saved model from its description alone."""
    content = _content(folder)
    settings = content.get("model")
    if not isinstance(settings, dict):
        raise damaged(folder / DESCRIPTION, "it describes no model", _AGAIN, WeightsError)
    check_stored(settings, folder, WeightsError, content.get("tokenizer"), content.get("target_tokenizer"))
    return config_from_dict(settings)


def _content(folder: Path) -> dict[str, Any]:
    content = read_json(folder / DESCRIPTION)
    if content.get("format") != FORMAT:
        raise WeightsError(
            f"{folder / DESCRIPTION} has the format {content.get('format')!r}, and this version reads {FORMAT}",
            hint="use the version of Glassformer that wrote it, or a later one",
        )
    check_document(folder / DESCRIPTION, content, WeightsError)
    return content


def _stored(tokenizer: Any, name: str) -> Any:
    """Return a tokenizer as JSON holds it; a published one has a file, if it is that of what the model reads."""
    if isinstance(tokenizer, PublishedTokenizer) and name == "tokenizer":
        return _IN_FILE
    return None if tokenizer is None else tokenizer.to_dict()


def _tokenizer(folder: Path, stored: Any) -> Any:
    try:
        if stored == _IN_FILE:
            return PublishedTokenizer.load(folder)
        return None if stored is None else tokenizer_from_dict(stored)
    except GlassformerError as error:
        raise WeightsError(f"the tokenizer of {folder} is damaged: {error.fact}", hint=error.hint) from error


def _arrays(loaded: LoadedModel) -> dict[str, Array]:
    """Return all tensors by name, each in one piece; refuse weights in blocks of a few bits."""
    leaves = flatten(loaded.params)
    for name, leaf in leaves.items():
        if isinstance(leaf, Quantized):
            raise ConfigError(
                f"{name} is kept in blocks of the form {leaf.form}, not as numbers",
                hint='load the model with weights="float32" to save it',
            )
    check_same(leaves, loaded.model.specs())
    extras = {_EXTRAS + name: array for name, array in loaded.extras.items()}
    return {name: np.ascontiguousarray(np.asarray(array)) for name, array in {**leaves, **extras}.items()}
