"""Texts into a model and names out of it: the batch that a text becomes, and what its ids are called."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import ops
from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from ..core.arrays import check_length
from ..core.errors import ConfigError, GlassformerError, LengthError
from ..core.settings import texts_of
from ..data import Task
from ..data.examples import stack
from ..generation.answer import example, input_ids
from ..generation.texts import encode_prompts, generate
from ..models import Batch
from ..text.tokenizer import id_of
from ..weights.loaded_model import LoadedModel
from .gradients import Logit
from .run import Run, watch

EXAMPLE = "The capital of France is"
"""What a published model reads by default."""
ANSWER = 32
"""Tokens of an encoder-decoder's answer that are shown at most."""


def watch_texts(model: LoadedModel, texts: str | Sequence[str] | Batch, **settings: Any) -> Run:
    """Watch a model read a text, several, or a batch."""
    return watch(model, texts if isinstance(texts, Batch) else batch_of(model, texts), **settings)


def batch_of(model: LoadedModel, texts: str | Sequence[str], answer: str | Sequence[str] | None = None) -> Batch:
    """Return texts as a batch, with a loss where there can be one; see `TrainedModel.batch`."""
    if isinstance(texts, str):
        return _one(model, texts, *([None] if answer is None else texts_of([answer])))
    given = texts_of(texts)
    said = [None] * len(given) if answer is None else texts_of([answer] if isinstance(answer, str) else answer)
    if not given or len(said) != len(given):
        raise LengthError(f"there are {len(given)} texts and {len(said)} answers", hint="give as many, at least one")
    return _padded([_one(model, *pair) for pair in zip(given, said, strict=True)])


def _padded(rows: list[Batch]) -> Batch:
    """Return batches of one example each as one batch, padded at the end, with masks."""

    def joined(name: str, pad: int = 0) -> tuple[Any, Any]:
        parts = [np.asarray(getattr(row, name)) for row in rows if getattr(row, name) is not None]
        if not parts or parts[0].ndim == 1:  # the class of each
            return (np.concatenate(parts) if parts else None), None
        return stack([part[0] for part in parts], pad=pad)

    (tokens, mask), (source, source_mask) = joined("tokens"), joined("source")
    return Batch(tokens, joined("targets", ops.IGNORE)[0], mask, source, source_mask, joined("segments")[0])


def _one(model: LoadedModel, text: str, answer: str | None = None) -> Batch:
    """Return one text as a batch of one."""
    if model.inputs is not None:
        if text or (answer is not None and not model.is_classifier):
            raise ConfigError(f"{model.title} reads the batch that it was given, and no text", hint="give another")
        batch = model.inputs
    elif answer is not None and not model.is_classifier:
        batch = _answered(model, text, answer)
    elif (task := known_task(model)) is not None:
        batch = example(model, task, text)
    else:
        batch = _published(model, text)
    if answer is not None and model.is_classifier:
        classes = getattr(model.config, "classes", None) or 0
        number = id_of(model.token_labels, answer, classes, is_class=True)
        return batch._replace(targets=np.full(len(batch.tokens), number))
    return _with_targets(model, batch)


def known_task(model: LoadedModel) -> Task | None:
    """Return the task of a model; None where it has none, or where its data is gone."""
    try:
        return model.task
    except GlassformerError:
        return None


def answers(model: LoadedModel) -> bool:
    """Return whether what the model writes is an answer, apart from what it reads."""
    if model.inputs is not None:
        return False
    if isinstance(model.config, EncoderDecoderConfig):
        return True
    task = known_task(model)
    return task is not None and task.metric == "sequence"


def example_text(model: LoadedModel) -> str:
    """Return a text to begin with."""
    if model.inputs is not None:
        return ""
    task = known_task(model)
    return EXAMPLE if task is None else next(iter(task.prompts), "")


def _answered(model: LoadedModel, text: str, answer: str) -> Batch:
    """Return a question, or a source, with another answer than the model's own."""
    if not answers(model) or model.answer_tokenizer is None:
        raise ConfigError(f"{model.title} gives no answers apart from its text", hint="write it behind the text")
    task = known_task(model)
    if task is not None:
        batch = task.encode_input(text)
    else:
        batch = _published(model, text)
        batch = batch._replace(tokens=np.asarray(batch.tokens)[:, :1])
    written = np.asarray(model.answer_tokenizer.encode(answer)).reshape(1, -1)
    tokens = np.concatenate([batch.tokens, written], axis=-1)
    check_length(tokens.shape[-1], model.config.context, what="the text with its answer")
    return batch._replace(tokens=tokens)


def _published(model: LoadedModel, text: str) -> Batch:
    """Return a typed input as a batch of one; an encoder-decoder's own answer to it stands behind its start token."""
    if isinstance(model.config, DecoderConfig):
        try:
            return Batch(encode_prompts(model, [text])[0][0][None])
        except LengthError as error:
            raise LengthError(error.fact, hint="shorten it") from None
    ids = input_ids(model, text)[None]
    if not isinstance(model.config, EncoderDecoderConfig):
        return Batch(ids)
    answer = generate(model, text, max_new_tokens=ANSWER, temperature=0.0).ids
    return Batch(np.array([[model.start_id, *answer]]), source=ids)


def _with_targets(model: LoadedModel, batch: Batch) -> Batch:
    """Return a batch with a loss: each token is asked for the next one, and a classifier for nothing."""
    if batch.targets is not None or isinstance(model.config, EncoderConfig):
        return batch
    tokens = np.asarray(batch.tokens)
    last = np.full((*tokens.shape[:-1], 1), ops.IGNORE, dtype=tokens.dtype)
    return batch._replace(targets=np.concatenate([tokens[:, 1:], last], axis=-1))


def logit_of(run: Run, token: str | None, against: str | None, position: int) -> Logit:
    """Return the logit that is asked about: the likeliest one unless a token is named."""
    chosen = int(np.argmax(run.logits[Logit(0, position).place(run, 0)[:-1]])) if token is None else run.token_id(token)
    return Logit(chosen, position, against=None if against is None else run.token_id(against))
