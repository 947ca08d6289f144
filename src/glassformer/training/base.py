"""The model that fine-tuning starts from: a run of our own, or published weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..arrays import Tree, widen
from ..config import TransformerConfig
from ..data import Lexicon
from ..errors import CheckpointError, ConfigError, WeightsError
from ..text import tokenizer_from_dict
from ..tree import named_leaves, tree_map
from ..weights.loaded import Loaded
from .lora import LoRA


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A model with its parameters, in float32 or wider, and how it reads and writes text."""

    config: TransformerConfig
    params: Tree
    lexicon: Lexicon
    end_ids: tuple[int, ...] = ()
    family: str = ""


@dataclass(frozen=True)
class Base:
    """What a run folder says about the model that its training started from.

    source               a path, the name of a pulled model or hf:org/name
    sha256               of all its parameters, so that another model in its place is noticed
    family               whose names its files use; empty for a run of our own
    start_id, end_ids    the tokens before and after a text
    lora                 the adapters that are trained beside it; None: all of it is trained
    """

    source: str
    sha256: str
    family: str = ""
    start_id: int | None = None
    end_ids: tuple[int, ...] = ()
    lora: LoRA | None = None

    @classmethod
    def of(cls, source: str, model: BaseModel, lora: LoRA | None) -> Self:
        """Describe a model that was read from `source`."""
        sha256 = fingerprint(model.params)
        return cls(stable(source), sha256, model.family, model.lexicon.start_id, model.end_ids, lora)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Build what `to_dict` described."""
        lora = None if content["lora"] is None else LoRA.from_dict(content["lora"])
        return cls(**{**content, "end_ids": tuple(content["end_ids"]), "lora": lora})

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        lora = None if self.lora is None else self.lora.to_dict()
        return {**vars(self), "end_ids": list(self.end_ids), "lora": lora}

    def lexicon(self, tokenizer: Any, target_tokenizer: Any) -> Lexicon:
        """Return how the model reads and writes text, with its tokenizers in their stored form."""
        target = None if target_tokenizer is None else tokenizer_from_dict(target_tokenizer)
        end = self.end_ids[0] if self.end_ids else None
        return Lexicon(tokenizer_from_dict(tokenizer), target, self.start_id, end)

    def read_params(self) -> Tree:
        """Return the parameters of the model again; refuse others than those that training started from."""
        params = read_base(self.source).params
        if fingerprint(params) != self.sha256:
            raise CheckpointError(
                f"{self.source} is not the model that this run started from: its parameters differ",
                hint="restore it, or fine-tune anew",
            )
        return params


def read_base(source: str) -> BaseModel:
    """Read the model at a path, a pulled one by its name, or one of the hub."""
    from ..weights.folder import is_published

    place = _locate(source)
    if place.is_dir() and not is_published(place):
        return _from_run(place)
    loaded = _open(place)
    if loaded.tokenizer is None:
        raise WeightsError(f"{source} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    end = loaded.end_ids[0] if loaded.end_ids else None
    lexicon = Lexicon(loaded.tokenizer, None, loaded.start_id, end)
    return BaseModel(loaded.config, tree_map(widen, loaded.params), lexicon, loaded.end_ids, loaded.family)


def stable(source: str) -> str:
    """Return a path in a form that means the same from any folder, and names as they are."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def fingerprint(params: Tree) -> str:
    """Return the SHA-256 of the names, types, shapes and values of all parameters."""
    digest = hashlib.sha256()
    for name, array in named_leaves(params):
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _from_run(folder: Path) -> BaseModel:
    from .run import open_run  # a run may have a base, and a base may be a run

    run = open_run(folder)
    if run.base is not None:
        lexicon, ends = run.base.lexicon(run.tokenizer, run.target_tokenizer), run.base.end_ids
        return BaseModel(run.config, run.load_params(), lexicon, ends, run.base.family)
    reader = tokenizer_from_dict(run.tokenizer)
    writer = None if run.target_tokenizer is None else tokenizer_from_dict(run.target_tokenizer)
    specials = (reader if writer is None else writer).specials
    end = specials.get("<eos>")
    lexicon = Lexicon(reader, writer, specials.get("<bos>"), end)
    return BaseModel(run.config, run.load_params(), lexicon, () if end is None else (end,))


def _locate(source: str) -> Path:
    """Return the file or folder that a path or a name stands for."""
    from ..weights.hub import PREFIX, hub_folder
    from ..weights.registry import REGISTRY, resolve

    if source.startswith(PREFIX):
        return hub_folder(source)
    place = Path(source)
    if place.exists():
        return place.parent if place.suffix == ".safetensors" else place
    if source not in REGISTRY:
        raise ConfigError(
            f"there is no model {source}: it is no run folder, no file or folder of weights and no known name",
            hint="pass a folder that `glassformer train` wrote, or one with config.json and model.safetensors; "
            "`glassformer models` lists the known names",
        )
    found = resolve(source)
    if found is None:
        raise WeightsError(f"{source} has not been fetched yet", hint=f"fetch it with `glassformer pull {source}`")
    return found


def _open(place: Path) -> Loaded:
    """Read published weights of any format."""
    if place.is_dir():
        from ..weights.folder import open_folder

        return open_folder(place)
    if place.suffix == ".gguf":
        from ..weights.gguf import open_gguf

        return open_gguf(place)
    if place.suffix == ".bin":
        from ..weights.llama2c import open_llama2c

        return open_llama2c(place)
    raise WeightsError(
        f"{place} is no file of weights of a known kind", hint="known: a folder, .gguf, .bin of llama2.c"
    )
