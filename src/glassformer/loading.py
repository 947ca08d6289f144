"""A trained model from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .config import EncoderConfig
from .errors import CheckpointError, ConfigError, GlassformerError
from .generation import LanguageModel
from .text import Tokenizer, tokenizer_from_dict
from .training.run import open_run

START, END = "<bos>", "<eos>"


def load(path: str | Path) -> LanguageModel:
    """Return the model of a run folder that `glassformer train` wrote, with its best parameters, ready to generate.

    Answers start with the token <bos> and end with <eos> where the tokenizer has them.
    """
    run = open_run(path)
    if isinstance(run.config, EncoderConfig):
        raise ConfigError(
            f"{path} holds an encoder, which reads and classifies but does not write text",
            hint=f"measure it with `glassformer eval {path}`, or look inside with `glassformer inspect {path}`",
        )
    reader = _tokenizer(run.tokenizer, path)
    writer = None if run.target_tokenizer is None else _tokenizer(run.target_tokenizer, path)
    specials = (reader if writer is None else writer).specials
    return LanguageModel(
        model=run.model,
        params=run.load_params(),
        tokenizer=reader,
        target_tokenizer=writer,
        end_ids=(specials[END],) if END in specials else (),
        start_id=specials.get(START),
    )


def _tokenizer(stored: Any, path: str | Path) -> Tokenizer:
    try:
        return tokenizer_from_dict(stored)
    except GlassformerError as error:
        raise CheckpointError(
            f"the tokenizer in {Path(path) / 'config.json'} is damaged: {error.fact}", hint="restore it from a copy"
        ) from error
