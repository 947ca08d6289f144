"""A line through points, in context: each sequence has a line of its own, to be found from its points.

After Garg et al. (2022). A model reads tokens, so numbers are put in bins: each token is a multiple of 1 / resolution.
"""

from typing import Annotated

import numpy as np

from ...core.arrays import Array
from ...core.errors import DataError
from ...models.model import Batch
from ...ops.loss import IGNORE
from ...text.symbols import WordTokenizer
from ..examples import Examples
from ..question_tasks import SETTINGS, Count, Seed, Splits, Within
from ..task import Task, recipe

LIMIT = 2  # of y = slope · x + offset, where slope, x and offset are between −1 and 1


def regression(
    *,
    seed: Seed = 0,
    points: Annotated[int, Within(2, 64)] = 8,
    resolution: Annotated[int, Within(2, 50)] = 10,
    train: Count = 50_000,
    validation: Count = 1000,
    held_out: Count = 1000,
) -> Task:
    """Build the task: -1 -0.7 0.5 0.1 … 0.2 is answered with -0.1, for the points of y = 0.5 x − 0.2.

    points       given before the one that is asked for, 2 to 64
    resolution   bins from one whole number to the next, 2 to 50; both x and y are rounded to them
    train, validation, held_out   how many sequences; each has a line of its own, drawn from a continuum, so no line
                                  of the held-out ones was ever trained on

    Training counts every y, a test the last one alone. It cannot be certain, because the y before it are rounded: the
    notes say how often least squares hits the right bin.
    """
    drawn = _draw(np.random.default_rng(seed), train + validation + held_out, points + 1, resolution)
    cuts = np.split(drawn, [train, train + validation])
    bins = np.arange(-LIMIT * resolution, LIMIT * resolution + 1)
    tokenizer = WordTokenizer([_written(number, resolution) for number in bins.tolist()])
    training, validating, testing = (_examples(part, LIMIT * resolution, every=part is cuts[0]) for part in cuts)
    share = float(np.mean(least_squares(cuts[2]) == cuts[2][:, -1, 1]))
    return Task(
        name="regression",
        architecture="decoder",
        tokenizer=tokenizer,
        train=training,
        validation=validating,
        held_out=testing,
        settings={
            "vocab": tokenizer.size, "context": 2 * points + 1, "width": 64, "heads": 4, "layers": 3, **SETTINGS,
        },
        recipe=recipe(steps=2500, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        metric="sequence",
        encode_input=lambda typed: Batch(_typed(typed, tokenizer, points, resolution)[None]),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:1]),
        prompts=tuple(tokenizer.decode(row) for row in testing.rows.tokens[:3]),
        notes=(Splits(*map(list, cuts)).note, f"least squares on the same numbers gets {share:.1%} of the test right"),
    )  # fmt: skip


def least_squares(points: Array) -> Array:
    """Return the bin of the last y of each sequence (N, points, 2), by the line closest to the points before it."""
    x, y = np.moveaxis(points[:, :-1].astype(float), -1, 0)
    around = x - x.mean(axis=1, keepdims=True)
    # Where all x are alike, their mean y is the best guess.
    slope = (around * y).sum(axis=1) / np.maximum((around * around).sum(axis=1), 1e-9)
    return np.rint(y.mean(axis=1) + slope * (points[:, -1, 0] - x.mean(axis=1))).astype(np.int64)


def _draw(rng: np.random.Generator, count: int, points: int, resolution: int) -> Array:
    """Return sequences of points on lines, as numbers of bins: (count, points, 2)."""
    slope, offset = rng.uniform(-1, 1, size=(2, count, 1))
    x = rng.integers(-resolution, resolution + 1, size=(count, points))
    y = np.rint(slope * x + offset * resolution).astype(np.int64)
    return np.stack([x, y], axis=-1)


def _examples(points: Array, shift: int, *, every: bool) -> Examples:
    """Stack sequences x y x y … x, each x with its y as the target: every one, or the last alone."""
    ids = points.reshape(len(points), -1) + shift
    targets = np.full_like(ids, IGNORE)
    targets[:, 0::2] = ids[:, 1::2]
    if not every:
        targets[:, :-2] = IGNORE
    return Examples(Batch(ids[:, :-1].copy(), targets[:, :-1].copy()))


def _written(number: int, resolution: int) -> str:
    return f"{number / resolution:.4g}"


def _typed(typed: str, tokenizer: WordTokenizer, points: int, resolution: int) -> Array:
    """Read x y x y … x, each number rounded to the nearest bin."""
    words = typed.replace(",", " ").split()
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise DataError(
            f"{typed!r} has something other than numbers", hint="type it like this: 0 0.2 0.5 0.4 1"
        ) from None
    if len(numbers) % 2 == 0 or len(numbers) > 2 * points + 1:
        hint = f"type up to {points} pairs x y, and then the x that is asked for"
        raise DataError(f"{len(numbers)} numbers were typed", hint=hint)
    if any(not abs(number) <= LIMIT for number in numbers):
        raise DataError(f"{typed!r} leaves the range of this task", hint=f"x is in -1 to 1, y in -{LIMIT} to {LIMIT}")
    return tokenizer.encode(" ".join(_written(round(number * resolution), resolution) for number in numbers))
