"""Measure a model on held-out data: on all of it, or on a sample of a long text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree, namespace
from ..core.reporting import report
from ..data.bag import MOST, BagOfWords, evenly
from ..data.examples import Dataset, Examples, Windows, count_targets
from ..models import Batch, Model
from ..models.costs import rows_at_once
from ..ops import IGNORE

Score: TypeAlias = Callable[[Tree, Batch], tuple[Any, Array]]
"""From parameters and a batch to its loss, and its likeliest classes or which of its answers are right, (B,)."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A model against a data set.

    loss       mean cross-entropy, or the loss that the model was trained with, over every counted target
    accuracy   share of examples that are right: the likeliest class, or every token of the answer (None: not asked)
    groups     accuracy of each group of examples, such as languages
    learned    accuracy after a step of training, on the batch of that step
    confusion  of a classifier: how many examples of each class (rows) are taken for each class (columns)
    error      standard error of the loss, where it is that of a sample; None: all of the data was measured
    commonest  of a classifier: the share that always saying the commonest class of the training data gets right
    bag        the share that a bag of words gets right: see `data.bag`; both None where they were not asked for
    """

    loss: float
    targets: int
    examples: int
    accuracy: float | None = None
    groups: dict[str, float] = field(default_factory=dict)
    learned: float | None = None
    confusion: tuple[tuple[int, ...], ...] = ()
    error: float | None = None
    commonest: float | None = None
    bag: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy (Wilson 1927); None where there is no accuracy."""
        if self.accuracy is None:
            return None
        share, z = self.accuracy, Z**2 / self.examples
        half = (z * (share * (1 - share) + z / 4)) ** 0.5
        return (share + z / 2 - half) / (1 + z), (share + z / 2 + half) / (1 + z)

    def __repr__(self) -> str:
        names = ("loss", "error", "accuracy", "commonest", "bag", "learned", "examples", "targets")
        figures = {name: value for name in names if (value := getattr(self, name)) is not None}
        said = [f"{name}={value if isinstance(value, int) else f'{value:.6g}'}" for name, value in figures.items()]
        if self.groups:
            some = [f"{name!r}: {share:.4g}" for name, share in list(self.groups.items())[:SHOWN]]
            said.append(f"groups={{{', '.join(some + ['…'] * (len(self.groups) > SHOWN))}}}")
        if self.confusion:
            said.append(f"confusion of {len(self.confusion)} classes")
        return f"Evaluation({', '.join(said)})"


Z = 1.96
"""Standard errors on either side of 95 % of a normal distribution."""
SHOWN = 8
"""Groups that the repr of an evaluation shows."""

PARTS = 16
"""A sample is measured in at least this many parts, whose losses say how uncertain their mean is."""


class ClassFigures(NamedTuple):
    """Precision and recall of one class.

    precision   share of the examples taken for this class that belong to it
    recall      share of its examples that are taken for it
    f1          harmonic mean of the two, 2 · precision · recall / (precision + recall)
    examples    how many of its examples there are; predicted: how many were taken for it

    A share of nothing counts as 0.
    """

    precision: float
    recall: float
    f1: float
    examples: int
    predicted: int


def class_figures(confusion: Sequence[Sequence[int]]) -> list[ClassFigures]:
    """Return the figures of each class of a confusion table."""
    table: Any = np.asarray(confusion)
    rows = []
    for hits, count, predicted in zip(np.diag(table), table.sum(1), table.sum(0), strict=True):
        f1 = 2 * hits / max(count + predicted, 1)  # the harmonic mean, with its fractions reduced
        shares = (float(hits / max(predicted, 1)), float(hits / max(count, 1)), float(f1))
        rows.append(ClassFigures(*shares, int(count), int(predicted)))
    return rows


def macro_average(figures: Sequence[ClassFigures]) -> tuple[float, float, float]:
    """Return mean precision, recall and F1 over the classes that occur or are predicted, each counting the same."""
    seen = [figure[:3] for figure in figures if figure.examples or figure.predicted]
    precision, recall, f1 = np.mean(seen, axis=0).tolist()
    return precision, recall, f1


def evaluate(
    model: Model,
    params: Tree,
    data: Dataset,
    *,
    metric: str = "none",
    batch: int | None = None,
    groups: Sequence[str] = (),
    scored: Score | None = None,
    most: int | None = None,
) -> Evaluation:
    """Measure a model on `data`, dropout off, in batches of as many examples as memory suggests unless given.

    A greedily written answer is right exactly when the model, reading the right answer, ranks every next token of it
    first; so one forward pass decides about it. `scored` tells the loss of a batch and which examples are right, in
    the place of the model's own forward pass and cross-entropy: see `score`. Of a text with more than `most` targets,
    windows drawn at random are measured.
    """
    measure = partial(score, model, None) if scored is None else scored
    size = rows_at_once(model.config, data.longest) if batch is None else batch
    sampled = sample_size(data, most)
    if sampled is not None:
        assert isinstance(data, Windows)
        data, size = data.sample(sampled), min(size, sampled // PARTS)
    losses: list[tuple[float, int]] = []
    marks: list[Any] = []
    classes: list[Any] = []
    examples = 0
    for rows in data.batches(size):
        report(examples, len(data), "examples")
        loss, answers = measure(params, rows)
        losses.append((float(loss), count_targets(rows)))
        examples += len(rows.tokens)
        if metric != "none":
            true = np.asarray(rows.targets)
            marks.append(answers if true.ndim > 1 else (answers == true) | (true == IGNORE))
            classes += [] if true.ndim > 1 else [np.stack([true, answers])[:, true != IGNORE]]
    targets = sum(counted for _, counted in losses)
    loss = sum(each * counted for each, counted in losses) / max(targets, 1)
    if metric == "none":
        spread = None if sampled is None else float(np.std([each for each, _ in losses], ddof=1))
        return Evaluation(loss, targets, examples, error=spread and spread / len(losses) ** 0.5)
    right = np.concatenate(marks)
    by_group = {name: float(right[np.asarray(groups) == name].mean()) for name in dict.fromkeys(groups)}
    confusion = _counted(np.concatenate(classes, axis=1), model.config.classes or 0) if classes else ()
    return Evaluation(loss, targets, examples, float(right.mean()), by_group, confusion=confusion)


def sample_size(data: Dataset, most: int | None) -> int | None:
    """Return how many windows of a text with more than `most` targets are measured; None: all of the data is."""
    if most is None or not isinstance(data, Windows) or data.count <= most:
        return None
    count = max(most // data.context, PARTS)
    return count if count < data.count // data.context else None


def combined(parts: Sequence[Evaluation]) -> Evaluation:
    """Return what is found on several parts of the data as if they were one; groups and classes only of one."""
    if len(parts) == 1:
        return parts[0]
    targets, examples = sum(part.targets for part in parts), sum(part.examples for part in parts)
    loss = sum(part.loss * part.targets for part in parts) / max(targets, 1)
    shares = [part.accuracy * part.examples for part in parts if part.accuracy is not None]
    return Evaluation(loss, targets, examples, sum(shares) / examples if shares else None)


def _counted(pairs: Array, classes: int) -> tuple[tuple[int, ...], ...]:
    """Count pairs of a true and a predicted class, (2, N)."""
    table: Any = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(table, tuple(pairs), 1)
    return tuple(map(tuple, table.tolist()))


def score(model: Model, pair: tuple[Callable[..., Any], ...] | None, params: Tree, rows: Batch) -> tuple[Array, Array]:
    """Return the loss of a batch, and its likeliest classes, or which of its answers are right, (B,)."""
    logits, _ = model.predict(params, rows)
    loss, _ = (ops.cross_entropy if pair is None else pair[0])(logits, rows.targets)
    likeliest = namespace(logits).argmax(logits, axis=-1)
    targets = namespace(logits).asarray(rows.targets)
    return loss, likeliest if targets.ndim == 1 else ((likeliest == targets) | (targets == IGNORE)).all(axis=-1)


def compared(found: Evaluation, train: Dataset, tested: Dataset) -> Evaluation:
    """Return what was measured of a classifier with what is easy: the commonest class, and a bag of words.

    Both are learned from the training data; data that is not whole numbers, each example with one class, has neither.
    """
    if not found.confusion or not (isinstance(train, Examples) and isinstance(tested, Examples)):
        return found
    if not all(np.asarray(part.rows.tokens).dtype.kind in "iu" for part in (train, tested)):
        return found
    classes = len(found.confusion)
    train, tested = train.answered(), tested.answered()
    labels: Any = train.rows.targets, tested.rows.targets
    always = float((labels[1] == np.bincount(labels[0], minlength=classes).argmax()).mean())
    sample = evenly(tested, MOST // classes)
    vocab = 1 + max(int(part.rows.tokens.max()) for part in (train, sample))
    scores = BagOfWords.learn(train, vocab, classes).scores(sample)
    right: Any = scores.argmax(-1) == sample.rows.targets
    return replace(found, commonest=always, bag=float(right.mean()))
