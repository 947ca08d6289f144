"""Texts into a model and names out of it: the batch that a text becomes, and what its ids are called."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..arrays import check_length
from ..config import EncoderConfig, EncoderDecoderConfig
from ..data import Task
from ..errors import ConfigError, GlassformerError, TokenError, WeightsError, did_you_mean
from ..generation.answer import example
from ..generation.texts import generate
from ..models import Batch
from ..text import PublishedTokenizer
from ..trained_model import TrainedModel
from .gradients import Logit
from .packed import unpacked
from .run import Run, watch
from .trace import Labels, token_labels

EXAMPLE = "The capital of France is"
"""What a published model reads by default."""
ANSWER = 32
"""Tokens of an encoder-decoder's answer that are shown at most."""


def watch_text(model: TrainedModel, text: str) -> Run:
    """Watch a model read a text."""
    return watch(model.model, unpacked(model.params), batch_of(model, text))


def batch_of(model: TrainedModel, text: str, answer: str | None = None) -> Batch:
    """Return a text as a batch of one, with a loss where there can be one; see `TrainedModel.batch`."""
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
        return batch._replace(targets=np.full(len(batch.tokens), token_id(model, answer)))
    return _with_targets(model, batch)


def known_task(model: TrainedModel) -> Task | None:
    """Return the task of a model; None where it has none, or where its data is gone."""
    try:
        return model.task
    except GlassformerError:
        return None


def answers(model: TrainedModel) -> bool:
    """Tell whether what the model writes is an answer, apart from what it reads."""
    if model.inputs is not None:
        return False
    if isinstance(model.config, EncoderDecoderConfig):
        return True
    task = known_task(model)
    return task is not None and task.metric == "sequence"


def example_text(model: TrainedModel) -> str:
    """Return a text to begin with."""
    if model.inputs is not None:
        return ""
    task = known_task(model)
    return EXAMPLE if task is None else next(iter(task.prompts), "")


def _answered(model: TrainedModel, text: str, answer: str) -> Batch:
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


def _published(model: TrainedModel, text: str) -> Batch:
    """Return a typed input as a batch of one; an encoder-decoder's own answer to it stands behind its start token."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise WeightsError(f"{model.title} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    around = {"specials": True} if isinstance(tokenizer, PublishedTokenizer) else {}
    ids = tokenizer.encode(text, **around)[None]
    check_length(ids.shape[-1], model.config.context, what="the input")
    if not isinstance(model.config, EncoderDecoderConfig):
        return Batch(ids)
    answer = generate(model, text, max_new_tokens=ANSWER, temperature=0.0).ids
    return Batch(np.array([[model.start_id, *answer]]), source=ids)


def _with_targets(model: TrainedModel, batch: Batch) -> Batch:
    """Return a batch with a loss: each token is asked for the next one, and a classifier for nothing."""
    if batch.targets is not None or isinstance(model.config, EncoderConfig):
        return batch
    tokens = np.asarray(batch.tokens)
    last = np.full((*tokens.shape[:-1], 1), ops.IGNORE, dtype=tokens.dtype)
    return batch._replace(targets=np.concatenate([tokens[:, 1:], last], axis=-1))


def labels_of(model: TrainedModel) -> Labels:
    """Return the names of a model's ids and classes; numbers where it has no tokenizer."""
    writes, reads = model.answer_tokenizer, model.tokenizer
    return Labels(
        tokens=str if writes is None else token_labels(writes),
        source=None if reads is None else token_labels(reads),
        classes=model.labels.__getitem__ if model.labels else str,
    )


def label(model: TrainedModel, number: int) -> str:
    """Return the name of a token that the model predicts, or of a class."""
    labels = labels_of(model)
    return ((labels.classes if model.is_classifier else labels.tokens) or str)(int(number))


def token_id(model: TrainedModel, word: str) -> int:
    """Return the id of one token, or the number of one class, by its text or as #id."""
    size = getattr(model.config, "classes", None) if model.is_classifier else model.config.vocab
    assert size is not None
    if word.startswith("#") and word[1:].isascii() and word[1:].isdigit():
        if int(word[1:]) >= size:
            raise TokenError(f"the model has no token {word}", hint=f"it has {size:,}, from #0 to #{size - 1}")
        return int(word[1:])
    if model.is_classifier:
        names = {label(model, number): number for number in range(size)}
        if word not in names:
            raise TokenError(f"there is no class {word!r}", hint=did_you_mean(word, names))
        return names[word]
    if model.answer_tokenizer is None:
        raise ConfigError(f"{model.title} has no tokenizer to read {word!r} with", hint="name the token as #id")
    ids = np.asarray(model.answer_tokenizer.encode(word)).reshape(-1)
    if len(ids) != 1:
        pieces = ", ".join(f"{label(model, i)!r} #{int(i)}" for i in ids)
        raise TokenError(f"{word!r} is {len(ids)} tokens: {pieces}", hint="name one of them; a space may belong to it")
    return int(ids[0])


def logit_of(model: TrainedModel, run: Run, token: str | None, against: str | None, position: int) -> Logit:
    """Return the logit that is asked about: the likeliest one unless a token is named."""
    row = run.logits[0] if model.is_classifier else run.logits[0, Logit(0, position).place(run, 0)[1]]
    chosen = int(np.argmax(row)) if token is None else token_id(model, token)
    return Logit(chosen, position, against=None if against is None else token_id(model, against))


def read_labels(model: TrainedModel, run: Run) -> list[str]:
    """Return the names of the tokens whose positions the head predicts from."""
    return [labels_of(model).tokens(int(number)) for number in np.asarray(run.batch.tokens)[0]]
