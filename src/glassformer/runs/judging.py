"""How sure a classifier is of texts that it has not learned from, how often it is right then, and labels it doubts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.documents import read_json
from ..data.bag import MOST, BagOfWords, evenly
from ..data.examples import Examples
from ..data.task import Task
from ..generation.answer import class_probabilities
from ..generation.sampling import log_softmax
from ..weights.loaded_model import LoadedModel
from .folder import write

CONFIDENCE = "confidence.json"
LEVELS = 100
"""Shares of the probability for which a run keeps how often its model is right."""


class Judged(NamedTuple):
    """A text with its label, and what a model that has not learned from it says.

    answer        the likeliest label, and its probability
    of_label      the probability of the label that the text has
    """

    text: str
    label: str
    answer: str
    probability: float
    of_label: float

    @property
    def is_right(self) -> bool:
        """Whether the likeliest label is that of the text."""
        return self.answer == self.label


class Confidence(NamedTuple):
    """How many held-out texts a model answers that it is at least so sure of, and how many of these rightly."""

    answered: int
    right: int
    texts: int


def judge(model: LoadedModel, task: Task) -> list[Judged]:
    """Return what a model says of the held-out texts of its task; nothing where the task keeps no texts."""
    if task.texts is None or not isinstance(task.held_out, Examples):
        return []
    return _judged(class_probabilities(model, task.held_out), task.held_out, task.texts.held_out, model.labels)


def judge_in_turn(task: Task, labels: Sequence[str]) -> list[Judged]:
    """Return what a bag of words says of the texts that were trained on, each left out of its counts in turn.

    Naive Bayes takes words for independent and so is far too sure of long texts: the logarithm of its odds is divided
    by the square root of their length.
    """
    if task.texts is None or not isinstance(task.train, Examples):
        return []
    data = evenly(task.train, MOST // len(labels))
    bag = BagOfWords.learn(data, task.tokenizer.size, len(labels))
    mask = data.rows.mask
    lengths = np.full(len(data), data.longest) if mask is None else mask.sum(-1)
    scores = bag.scores(data, left_out=True) / np.sqrt(np.maximum(lengths, 1))[:, None]
    texts = task.texts.train[:: -(-len(task.train) // len(data))]
    return _judged(np.exp(log_softmax(scores)), data, texts, labels)


def _judged(shares: Array, data: Examples, texts: Sequence[str], labels: Sequence[str]) -> list[Judged]:
    likeliest = shares.argmax(-1)
    return [
        Judged(text, labels[true], labels[answer], float(row[answer]), float(row[true]))
        for text, row, answer, true in zip(texts, shares, likeliest, np.asarray(data.rows.targets), strict=True)
    ]


def samples(judged: Iterable[Judged], count: int = 3) -> list[Judged]:
    """Return some of the texts, one of them answered wrongly where there is such a one."""
    judged = list(judged)
    wrong = [example for example in judged if not example.is_right][:1]
    return [*[example for example in judged if example.is_right][: count - len(wrong)], *wrong]


def doubted(judged: Iterable[Judged], count: int) -> list[Judged]:
    """Return the texts whose own label is the least likely, of those for which another one is likelier."""
    return sorted((each for each in judged if not each.is_right), key=lambda each: each.of_label)[:count]


def write_confidence(folder: Path, judged: Sequence[Judged]) -> None:
    """Write into a run folder how often its model is right about held-out texts, by how sure it is."""
    sure = [min(int(example.probability * LEVELS), LEVELS) for example in judged]
    right = [level for level, example in zip(sure, judged, strict=True) if example.is_right]
    above = [np.bincount(levels, minlength=LEVELS + 1)[::-1].cumsum()[::-1].tolist() for levels in (sure, right)]
    content = {"texts": len(judged), "answered": above[0], "right": above[1]}
    write(folder / CONFIDENCE, json.dumps(content) + "\n")


def read_confidence(folder: Path, at_least: float) -> Confidence | None:
    """Return how often the model of a run is right where it is at least so sure, by hundredths; None: not measured."""
    if not (folder / CONFIDENCE).is_file():
        return None
    stored, level = read_json(folder / CONFIDENCE), round(at_least * LEVELS)
    return Confidence(stored["answered"][level], stored["right"][level], stored["texts"])
