"""The model that fine-tuning starts from: a run of our own, or published weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..arrays import Tree, widen
from ..config import TransformerConfig
from ..data import Lexicon
from ..errors import CheckpointError, GlassformerError, WeightsError
from ..text import Tokenizer, tokenizer_from_dict
from ..tree import named_leaves, tree_map
from ..weights.places import is_run, locate, open_published
from .lora import LoRA

if TYPE_CHECKING:
    from .run import Run

START, END = "<bos>", "<eos>"
"""What our own tokenizers call the tokens before and after a text."""


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
    place = locate(source)
    if is_run(place):
        from .run import open_run  # a run may have a base, and a base may be a run

        return model_of_run(open_run(place))
    loaded = open_published(place)
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


def model_of_run(run: Run) -> BaseModel:
    """Return what a run of our own trained; its tokenizer, or its base, says how texts start and end."""
    reader, writer = _tokenizer(run, run.tokenizer), None
    if run.target_tokenizer is not None:
        writer = _tokenizer(run, run.target_tokenizer)
    if run.base is not None:
        start, ends, family = run.base.start_id, run.base.end_ids, run.base.family
    else:
        specials = (reader if writer is None else writer).specials
        start, ends, family = specials.get(START), (specials[END],) if END in specials else (), ""
    lexicon = Lexicon(reader, writer, start, ends[0] if ends else None)
    return BaseModel(run.config, run.load_params(), lexicon, ends, family)


def _tokenizer(run: Run, stored: Any) -> Tokenizer:
    try:
        return tokenizer_from_dict(stored)
    except GlassformerError as error:
        raise CheckpointError(
            f"the tokenizer in {run.folder / 'config.json'} is damaged: {error.fact}", hint="restore it from a copy"
        ) from error
