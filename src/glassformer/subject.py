"""What one looks into: a model, what it read, and how its ids are called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import ops
from .arrays import Array, Tree, check_length
from .config import EncoderDecoderConfig
from .errors import ConfigError, TokenError, WeightsError, did_you_mean
from .generation.sampling import Sampling
from .generation.writer import generate_steps
from .interpret import Labels, Logit, Run, token_labels, unpacked, watch
from .loading import is_run, load_weights, locate
from .models import Batch, Encoder, Model
from .quantized import FORMS
from .runs.run import open_run
from .runs.trained import Trained
from .text import PublishedTokenizer, Tokenizer
from .training.checkpoint import BEST
from .tree import tree_map
from .weights.loaded import Loaded
from .weights.places import open_published

EXAMPLE = "The capital of France is"
"""What a published model reads until somebody says more."""
ANSWER = 32
"""Tokens of an encoder-decoder's answer that are shown at most."""


@dataclass(frozen=True)
class Subject:
    """A model, with what is needed to read and to name."""

    model: Model
    params: Tree
    labels: Labels
    tokenizer: Tokenizer | None  # of what it writes
    trained: Trained | None
    loaded: Any
    name: str

    def watch(self, text: str) -> Run:
        """Watch the model read a text."""
        return watch(self.model, self.params, self.batch(text))

    def batch(self, text: str, answer: str | None = None) -> Batch:
        """Return a text as a batch of one, with a loss where there can be one.

        answer   what stands behind a question, or is said about a source; None: the model's own. Of a classifier the
                 class that is right, for a loss: it has none without
        """
        if answer is not None and not self.is_classifier:
            batch = self._answered(text, answer)
        elif self.trained is not None:
            batch = self.trained.example(text)
        else:
            batch = published_batch(self.loaded, self.name, text)
        if answer is not None and self.is_classifier:
            return batch._replace(targets=np.array([self.token(answer)]))
        return with_targets(self.model, batch)

    @property
    def reads(self) -> bool:
        """Whether it reads texts."""
        return True

    @property
    def answers(self) -> bool:
        """Whether what the model writes is an answer, apart from what it reads."""
        if isinstance(self.model.config, EncoderDecoderConfig):
            return True
        return self.trained is not None and self.trained.task.metric == "sequence"

    def _answered(self, text: str, answer: str) -> Batch:
        """Return a question, or a source, with another answer than the model's own."""
        if not self.answers or self.tokenizer is None:
            raise ConfigError(f"{self.name} gives no answers apart from its text", hint="write it behind the text")
        if self.trained is not None:
            batch = self.trained.task.encode_input(text)
        else:
            batch = published_batch(self.loaded, self.name, text)
            batch = batch._replace(tokens=np.asarray(batch.tokens)[:, :1])
        written = np.asarray(self.tokenizer.encode(answer)).reshape(1, -1)
        tokens = np.concatenate([batch.tokens, written], axis=-1)
        check_length(tokens.shape[-1], self.model.config.context, what="the text with its answer")
        return batch._replace(tokens=tokens)

    def example_text(self) -> str:
        """Return a text to begin with."""
        if self.trained is not None:
            return next(iter(self.trained.task.prompts), "")
        return EXAMPLE

    @property
    def chats(self) -> bool:
        """Whether the model answers in a conversation."""
        return self.loaded is not None and getattr(self.loaded, "chat_template", None) is not None

    def label(self, number: int) -> str:
        """Return what a token, or a class, is called."""
        known = self.labels.classes if self.is_classifier else self.labels.tokens
        return (known or str)(int(number))

    @property
    def is_classifier(self) -> bool:
        """Whether the model predicts one class for a text."""
        return isinstance(self.model, Encoder) and self.model.config.head == "classes"

    def token(self, word: str) -> int:
        """Return the id of one token, or the number of one class, by its text or as #id."""
        size = self.model.config.classes if self.is_classifier else self.model.config.vocab
        if word.startswith("#") and word[1:].isascii() and word[1:].isdigit():
            if int(word[1:]) >= size:
                raise TokenError(f"the model has no token {word}", hint=f"it has {size:,}, from #0 to #{size - 1}")
            return int(word[1:])
        if self.is_classifier:
            names = {self.label(number): number for number in range(size)}
            if word not in names:
                raise TokenError(f"there is no class {word!r}", hint=did_you_mean(word, names))
            return names[word]
        if self.tokenizer is None:
            raise ConfigError(f"{self.name} has no tokenizer to read {word!r} with", hint="name the token as #id")
        ids = np.asarray(self.tokenizer.encode(word)).reshape(-1)
        if len(ids) != 1:
            pieces = ", ".join(f"{self.label(i)!r} #{int(i)}" for i in ids)
            raise TokenError(
                f"{word!r} is {len(ids)} tokens: {pieces}", hint="name one of them; a space may belong to it"
            )
        return int(ids[0])

    def target(self, run: Run, token: str | None, against: str | None, position: int) -> Logit:
        """Return the logit that is asked about: the likeliest one unless a token is named."""
        row = run.logits[0] if self.is_classifier else run.logits[0, Logit(0, position).place(run, 0)[1]]
        chosen = int(np.argmax(row)) if token is None else self.token(token)
        return Logit(chosen, position, against=None if against is None else self.token(against))


@dataclass(frozen=True)
class Given(Subject):
    """A model with the one batch that it reads: it reads no texts."""

    given: Batch

    @classmethod
    def of(cls, model: Model, params: Tree, batch: Batch) -> Given:
        """Return a model with its batch; ids are called by their numbers."""
        return cls(model, params, Labels(tokens=str, classes=str), None, None, None, type(model).__name__, batch)

    def batch(self, text: str, answer: str | None = None) -> Batch:
        """Return the batch, of a classifier with the class that is right; refuse to read anything else."""
        if text or (answer is not None and not self.is_classifier):
            raise ConfigError(f"{self.name} reads the batch that it was given, and no text", hint="give another batch")
        if answer is not None:
            return self.given._replace(targets=np.full(len(self.given.tokens), self.token(answer)))
        return with_targets(self.model, self.given)

    @property
    def reads(self) -> bool:
        """It does not: there is the batch alone, with its answers inside."""
        return False

    @property
    def answers(self) -> bool:
        """It does not, either."""
        return False

    def example_text(self) -> str:
        """Return nothing: there is no text."""
        return ""


def find_subject(name: str) -> Subject:
    """Return the model of that name: a run, a saved model, or published weights."""
    place: Path = locate(name)
    if is_run(place):
        run = open_run(place)
        return trained_subject(Trained(run.model, run.load_params(BEST), run.task()), name)
    return loaded_subject(load_weights(place), name)


def stored_subject(name: str) -> Subject:
    """Return the model of that name with its weights as its file stores them: in blocks, they take little memory."""
    place: Path = locate(name)
    if is_run(place):
        return find_subject(name)
    loaded = open_published(place, kept=FORMS)
    # Vectors are views of the file, which would stay in memory for their sake beside matrices in blocks.
    params = tree_map(lambda leaf: np.array(leaf) if leaf.ndim == 1 else leaf, loaded.params)
    return _subject_of(replace(loaded, params=params), params, name)


def trained_subject(trained: Trained, name: str) -> Subject:
    """Return a model that has learned a task."""
    answers = trained.task.answer_tokenizer
    return Subject(trained.model, trained.params, task_labels(trained), answers, trained, None, name)


def loaded_subject(loaded: Loaded, name: str) -> Subject:
    """Return a model as it came out of its files, its weights unpacked."""
    return _subject_of(loaded, unpacked(loaded.params), name)


def _subject_of(loaded: Loaded, params: Tree, name: str) -> Subject:
    classes = loaded.labels.__getitem__ if loaded.labels else str
    labels = Labels(tokens=str if loaded.tokenizer is None else token_labels(loaded.tokenizer), classes=classes)
    return Subject(loaded.model, params, labels, loaded.tokenizer, None, loaded, name)


def with_targets(model: Model, batch: Batch) -> Batch:
    """Return a batch with a loss: each token is asked for the next one, and a classifier for nothing."""
    if batch.targets is not None or isinstance(model, Encoder):
        return batch
    tokens = np.asarray(batch.tokens)
    last = np.full((*tokens.shape[:-1], 1), ops.IGNORE, dtype=tokens.dtype)
    return batch._replace(targets=np.concatenate([tokens[:, 1:], last], axis=-1))


def read_labels(subject: Subject, run: Run) -> list[str]:
    """Return what the tokens are called whose positions the head speaks of."""
    tokens: Array = np.asarray(run.batch.tokens)[0]
    return [subject.labels.tokens(int(number)) for number in tokens]


def published_batch(loaded: Loaded, name: str, text: str) -> Batch:
    """Return a typed input as a batch of one; an encoder-decoder's own answer to it stands behind its start token."""
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise WeightsError(f"{name} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    around = {"specials": True} if isinstance(tokenizer, PublishedTokenizer) else {}
    ids = tokenizer.encode(text, **around)[None]
    check_length(ids.shape[-1], loaded.config.context, what="the input")
    if not isinstance(loaded.config, EncoderDecoderConfig):
        return Batch(ids)
    steps = generate_steps(
        loaded.model,
        loaded.params,
        [[loaded.start_id or 0]],
        sources=[ids[0]],
        max_new_tokens=ANSWER,
        sampling=Sampling(temperature=0.0),
        stop_ids=loaded.end_ids,
        known=tokenizer.size,
    )
    answer = [int(step.ids[0]) for step in steps]
    return Batch(np.array([[loaded.start_id or 0, *answer]]), source=ids)


def task_labels(trained: Trained) -> Labels:
    """Return how the ids of a task's model are called."""
    task = trained.task
    return Labels(
        tokens=token_labels(task.answer_tokenizer),
        source=token_labels(task.tokenizer),
        classes=lambda number: task.decode_answer([number]),
    )
