"""Models by where they are: a run of our own, published weights in a file or folder, a pulled model, or the hub.

a folder              that `glassformer train` or `gf.save` wrote, or with config.json and model.safetensors
a file                in the format GGUF (.gguf) or of llama2.c (.bin)
smollm2, minilm       what `glassformer pull` fetched
hf:org/name           a model of the Hugging Face hub
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from . import dispatch
from .config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from .data import Lexicon, Task, build_task
from .errors import ConfigError, WeightsError
from .generation import LanguageModel
from .generation.storage import AS_STORED
from .quantized import FORMS
from .runs.own import check_task
from .runs.run import Run, model_of_run, open_run
from .text import PublishedTokenizer, Tokenizer, tokenizer_from_dict
from .text.published import TOKENIZER
from .weights.loaded import Loaded
from .weights.places import is_run, locate, open_published

__all__ = [
    "is_run", "language_model", "load", "load_config", "load_stored", "load_tokenizer", "load_weights", "locate",
    "task_of",
]  # fmt: skip


def load(path: str | Path, *, weights: str | None = None) -> LanguageModel:
    """Return a model that writes, ready to generate: a run of our own with its best parameters, or a published one.

    weights     how they are kept: float32, float16, int8, int4, or as-stored: in the blocks of a GGUF file. The fewer
                bits, the sooner an answer. None: as a GGUF file stores them, and float32 otherwise. The engine jax has
                float32 (unless told otherwise), bfloat16 and float16, on its device

    Answers of our own models start with the token <bos> and end with <eos> where the tokenizer has them; those that
    were fine-tuned start and end as the model they come from.
    """
    place = locate(path)
    if is_run(place) and isinstance(open_run(place).config, EncoderConfig):
        hint = (
            f"let it answer with `glassformer predict {path} INPUT`, or look inside with `glassformer inspect {path}`"
        )
        raise _does_not_write(path, hint)
    loaded = load_stored(path, weights=weights)
    if isinstance(loaded.config, EncoderConfig):
        raise _does_not_write(path, f"turn texts into vectors with `glassformer embed {path} TEXT…`")
    return language_model(loaded)


def load_stored(path: str | Path, *, weights: str | None = None) -> Loaded:
    """Return any model, its weights kept as `load` says; those of encoders are kept as float32 alone."""
    place = locate(path)
    how = _storage(place, weights)
    kept = FORMS if how == AS_STORED else ()
    loaded = _of_run(open_run(place)) if is_run(place) else open_published(place, kept=kept)
    if isinstance(loaded.config, EncoderConfig):
        if how != "float32":
            raise ConfigError(f"the weights of encoders are not kept as {how}", hint="leave out weights")
        return loaded
    return replace(loaded, params=dispatch.current().stored(loaded.params, how))


def language_model(loaded: Loaded) -> LanguageModel:
    """Return a model as one that writes text."""
    if loaded.tokenizer is None:
        where = loaded.source or "this model"
        raise WeightsError(f"{where} has no tokenizer to write text with", hint=f"get its {TOKENIZER} as well")
    return LanguageModel(
        model=loaded.model,
        params=loaded.params,
        tokenizer=loaded.tokenizer,
        target_tokenizer=loaded.target_tokenizer,
        end_ids=loaded.end_ids,
        start_id=loaded.start_id,
        chat_template=loaded.chat_template,
        source_end_id=source_end(loaded.config, loaded.tokenizer),
    )


def load_weights(path: str | Path, dtype: Any = np.float32) -> Loaded:
    """Return any model with its config, parameters and tokenizer, encoders included; see this module for the paths."""
    place = locate(path)
    return _of_run(open_run(place)) if is_run(place) else open_published(place, dtype)


def load_config(path: str | Path) -> TransformerConfig:
    """Return the config of any model; of a folder, nothing but its config.json is read."""
    place = locate(path)
    if is_run(place):
        return open_run(place).config
    if place.is_dir():
        from .weights.folder import read_config
        from .weights.saved import is_saved, read_saved_config

        return read_saved_config(place) if is_saved(place) else read_config(place)
    if place.suffix == ".gguf":
        return _gguf_parts(place)[1]
    return open_published(place).config


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Return the tokenizer of any model, or the one in a tokenizer.json."""
    place = locate(path)
    if place.suffix == ".json" or (place / TOKENIZER).is_file():
        return PublishedTokenizer.load(place)
    if is_run(place):
        return tokenizer_from_dict(open_run(place).tokenizer)
    tokenizer = _gguf_parts(place)[0] if place.suffix == ".gguf" else load_weights(place).tokenizer
    if tokenizer is None:
        raise WeightsError(f"{path} has no tokenizer that can be read", hint=f"get its {TOKENIZER} as well")
    return tokenizer


def task_of(loaded: Loaded) -> Task:
    """Return the task that a saved model learned, where its notes name one."""
    origin = loaded.notes["task"]
    check_task(origin["name"], Path(loaded.source))
    options = dict(origin["options"])
    if origin.get("lexicon"):  # it was learned with the vocabulary of a model that existed before
        end = loaded.end_ids[0] if loaded.end_ids else None
        options["lexicon"] = Lexicon(loaded.tokenizer, loaded.target_tokenizer, loaded.start_id, end)
    return build_task(origin["name"], **options)


def _storage(place: Path, weights: str | None) -> str:
    """Return how weights are to be kept."""
    if weights is None:
        # Without kernels, blocks would be turned into numbers again for every token.
        return AS_STORED if place.suffix == ".gguf" and dispatch.current().keeps_blocks else "float32"
    dispatch.current().check_storage(weights)
    if weights == AS_STORED and place.suffix != ".gguf":
        raise ConfigError(
            f"only GGUF files are used as they are stored, and {place} is none",
            hint="choose float32, float16, int8 or int4",
        )
    return weights


def _of_run(run: Run) -> Loaded:
    """Return what a run of our own trained."""
    trained = model_of_run(run)
    tokenizer = trained.lexicon.tokenizer
    return Loaded(
        config=trained.config,
        params=trained.params,
        family=trained.family,
        tokenizer=tokenizer,
        target_tokenizer=trained.lexicon.target_tokenizer,
        start_id=trained.lexicon.start_id,
        end_ids=trained.end_ids,
        chat_template=getattr(tokenizer, "chat_template", None),
        source=str(run.folder),
        execution=run.model.execution,
    )


def _gguf_parts(place: Path) -> tuple[Tokenizer, TransformerConfig]:
    """Return what the header of a GGUF file holds, without its weights."""
    from .weights.gguf_config import read_config
    from .weights.gguf_header import read_header
    from .weights.gguf_tokenizer import read_tokenizer

    header = read_header(place)
    _, config = read_config(header)
    return read_tokenizer(header, vocab=config.vocab)[0], config


def source_end(config: TransformerConfig, tokenizer: Tokenizer) -> int | None:
    """Return the token that the tokenizer of an encoder-decoder puts after every source."""
    if not isinstance(config, EncoderDecoderConfig) or not isinstance(tokenizer, PublishedTokenizer):
        return None
    ids = tokenizer.encode("", specials=True)
    return int(ids[-1]) if len(ids) else None


def _does_not_write(path: str | Path, hint: str) -> ConfigError:
    return ConfigError(f"{path} holds an encoder, which reads and classifies but does not write text", hint=hint)
