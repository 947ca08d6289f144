"""The model that a run's training started from, as its run folder describes it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..arrays import Tree
from ..data import Lexicon
from ..data.corpus import CARRIED, check_path
from ..text import tokenizer_from_dict
from ..trained_model import TrainedModel
from ..training.lora import LoRA
from ..tree import named_leaves


@dataclass(frozen=True)
class Base:
    """The model that a run's training started from.

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
    def of(cls, source: str, model: TrainedModel, lora: LoRA | None) -> Self:
        """Describe a model that was read from `source`."""
        return cls(stable(source), fingerprint(model.params), model.family, model.start_id, model.end_ids, lora)

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


def stable(source: str) -> str:
    """Return a path as an absolute one, so that a run can go on in any folder; names as they are."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def stable_data(data: str | None) -> str | None:
    """Return a path to data as an absolute one; texts that Python carries keep their names."""
    if data is None or data in CARRIED:
        return data
    check_path(data)
    return stable(data)


def fingerprint(params: Tree) -> str:
    """Return the SHA-256 of the names, types, shapes and values of all parameters."""
    digest = hashlib.sha256()
    for name, array in named_leaves(params):
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
