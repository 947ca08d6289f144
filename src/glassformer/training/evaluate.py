"""How good a model is on all of the held-out data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from .. import ops
from ..arrays import Array, Tree, namespace
from ..data.examples import Dataset, count_targets
from ..models import Batch, Model
from ..models.accounting import activation_bytes
from ..ops import IGNORE

Score: TypeAlias = Callable[[Tree, Batch], tuple[Any, Array]]
"""From parameters and a batch to its loss, and which of its examples are right, (B,)."""

MOST_ROWS = 64
MOST_BYTES = 1 << 30
"""Limits of a batch of evaluation: examples, and bytes of the activation record."""


@dataclass(frozen=True)
class Evaluation:
    """A model against a whole data set.

    loss       mean cross-entropy over every counted target
    accuracy   share of examples that are right: the likeliest class, or every token of the answer (None: not asked)
    groups     accuracy of each group of examples, such as languages
    learned    accuracy after a step of training, on the batch of that step
    """

    loss: float
    targets: int
    examples: int
    accuracy: float | None = None
    groups: dict[str, float] = field(default_factory=dict)
    learned: float | None = None


def evaluate(
    model: Model,
    params: Tree,
    data: Dataset,
    *,
    metric: str = "none",
    batch: int | None = None,
    groups: Sequence[str] = (),
    scored: Score | None = None,
    pair: tuple[Callable[..., Any], ...] | None = None,
) -> Evaluation:
    """Measure a model on all of `data`, dropout off, in batches of as many examples as memory suggests unless given.

    A greedily written answer is right exactly when the model, reading the right answer, ranks every next token of it
    first; so one forward pass decides about it. `scored` tells the loss of a batch and which examples are right, in
    the place of the model's own forward pass, and `pair` is a loss in the place of cross-entropy.
    """
    found = partial(score, model, pair) if scored is None else scored
    total, targets = 0.0, 0
    right: list[Any] = []
    examples = 0
    for rows in data.batches(rows_at_once(model, data) if batch is None else batch):
        loss, marks = found(params, rows)
        counted = count_targets(rows)
        total += float(loss) * counted
        targets += counted
        examples += len(rows.tokens)
        if metric != "none":
            right.append(marks)
    loss = total / max(targets, 1)
    if metric == "none":
        return Evaluation(loss, targets, examples)
    all_marks = np.concatenate(right)
    by_group = {name: float(all_marks[np.asarray(groups) == name].mean()) for name in dict.fromkeys(groups)}
    return Evaluation(loss, targets, examples, float(all_marks.mean()), by_group)


def score(model: Model, pair: tuple[Callable[..., Any], ...] | None, params: Tree, rows: Batch) -> tuple[Array, Array]:
    """Return the loss of a batch, and which of its examples are right, (B,)."""
    logits, _ = model.predict(params, rows)
    loss, _ = (ops.cross_entropy if pair is None else pair[0])(logits, rows.targets)
    return loss, right_answers(logits, rows.targets)


def rows_at_once(model: Model, data: Dataset) -> int:
    """Return how many examples are read together."""
    config = model.config
    # Logits, their exponentials and what they are compared with, beside the record; eight bytes suit every type.
    each = activation_bytes(config, 1, data.longest, 8) + 3 * 8 * data.longest * config.vocab
    return max(1, min(MOST_ROWS, MOST_BYTES // each))


def right_answers(logits: Array, targets: Array) -> Array:
    """Tell for every example whether all its counted targets are the likeliest, (B,)."""
    xp = namespace(logits)
    targets = xp.asarray(targets)
    hit = (xp.argmax(logits, axis=-1) == targets) | (targets == IGNORE)
    return hit if hit.ndim == 1 else hit.all(axis=-1)
