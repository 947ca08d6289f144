"""One answer to one input, with its probability: a class, what a model writes, the next token, or hidden ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError
from ..models import Batch, Model
from ..text import PublishedTokenizer
from ..trained_model import TrainedModel
from .sampling import Sampling, likeliest, log_softmax, only_known
from .texts import generate
from .writer import generate_steps

CLASS, ANSWER, NEXT, MASKS = "class", "answer", "next token", "masks"
"""Kinds of predictions."""

Label = Callable[[int], str]
GREEDY = Sampling(temperature=0.0)


class Choice(NamedTuple):
    """One of several possibilities: what it is called, its id, and how probable the model finds it."""

    text: str
    id: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What a model answers to one input.

    kind          class, answer, next token or masks
    answer        the likeliest class, what was written, the likeliest next token, or the text with its masks filled in
    probability   of the whole answer; for several masks, the product of their probabilities
    choices       the likeliest possibilities, best first, for each place that was predicted; none for what was written
    """

    kind: str
    answer: str
    probability: float
    choices: tuple[tuple[Choice, ...], ...] = ()


def predict_class(model: Model, params: Tree, batch: Batch, *, label: Label, top: int) -> Prediction:
    """Return the class of a batch of one."""
    logits, _ = model.predict(params, batch)
    return _of_places(CLASS, np.asarray(logits).reshape(1, -1), label, top)


def predict_next(model: TrainedModel, text: str, *, top: int, truncate: bool = False) -> Prediction:
    """Return the token that follows a text."""
    answer = generate(
        model, text, max_new_tokens=1, temperature=0.0, log_probabilities=top, truncate=truncate, slide=False
    )
    tokenizer = model.answer_tokenizer
    assert tokenizer is not None
    [place] = answer.top
    choices = tuple(Choice(tokenizer.decode([i]), i, math.exp(log)) for i, log in place)
    return Prediction(NEXT, choices[0].text, choices[0].probability, (choices,))


def predict_text(model: TrainedModel, text: str, *, truncate: bool = False) -> Prediction:
    """Return what a model writes about a text, always the likeliest token next."""
    answer = generate(model, text, temperature=0.0, log_probabilities=0, truncate=truncate, slide=False)
    return Prediction(ANSWER, answer.text, math.exp(sum(answer.log_probabilities)))


def predict_answer(
    model: Model,
    params: Tree,
    batch: Batch,
    *,
    count: int,
    known: int,
    stop_ids: Sequence[int],
    decode: Callable[[Sequence[int]], str],
) -> Prediction:
    """Return what follows the tokens of a batch of one, greedily, up to a stop id or `count` tokens."""
    steps = generate_steps(
        model,
        params,
        [batch.tokens[0]],
        sources=None if batch.source is None else [batch.source[0]],
        max_new_tokens=count,
        sampling=GREEDY,
        stop_ids=stop_ids,
        known=known,
        log_probabilities=0,
    )
    ids, total = [], 0.0
    for step in steps:
        assert step.log_probabilities is not None
        ids.append(int(step.ids[0]))
        total += float(step.log_probabilities[0])
    return Prediction(ANSWER, decode(ids), math.exp(total))


def predict_masks(model: Model, params: Tree, ids: Array, *, tokenizer: PublishedTokenizer, top: int) -> Prediction:
    """Return the tokens behind the masks among ids (T,), each predicted independently."""
    mask = tokenizer.role_id("mask")
    places = np.flatnonzero(ids == mask)
    if mask is None or not len(places):
        name = tokenizer.roles.get("mask", "[MASK]")
        raise ConfigError(f"the input holds no {name} to be filled in", hint=f"write {name} in place of a word")
    logits, _ = model.predict(params, Batch(ids[None]))
    logits = only_known(np.asarray(logits)[0, places], tokenizer.size)
    found = _of_places(MASKS, logits, tokenizer.piece, top)
    filled = ids.copy()
    filled[places] = [choices[0].id for choices in found.choices]
    return replace(found, answer=tokenizer.decode(filled, skip_specials=True))


def _of_places(kind: str, logits: Array, label: Label, top: int) -> Prediction:
    """Return the likeliest possibilities by logits (places, possibilities)."""
    logs = log_softmax(logits)
    choices = tuple(
        tuple(Choice(label(i), i, math.exp(log[i])) for i in likeliest(log, min(top, len(log))).tolist())
        for log in logs
    )
    first = [place[0] for place in choices]
    return Prediction(kind, " ".join(one.text for one in first), math.prod(one.probability for one in first), choices)
