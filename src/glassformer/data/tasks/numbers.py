"""Tasks of numbers: adding and multiplying, arithmetic modulo a number, and a line through points.

Adding is one of minGPT's demonstrations. Of a table modulo a number, a model knows the training part by heart long
before it understands the rest: grokking (Power et al., 2022). Lines are found in context, after Garg et al. (2022).
"""

import itertools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import numpy as np

from ...core.arrays import Array
from ...core.errors import ConfigError, DataError
from ...core.settings import Within, check_known
from ...models.model import Batch
from ...ops.loss import IGNORE
from ...text.symbols import CharTokenizer, WordTokenizer
from ..examples import Examples
from ..splits import Splits
from ..task import SETTINGS, Count, Lexicon, Seed, Task, question_task, recipe

LISTED = 2  # digits up to which all pairs are listed; beyond, some are drawn
TRAIN = 50_000  # pairs to train on at most, unless asked for
OPERATIONS: dict[str, tuple[str, str, Callable[[int, int], int]]] = {
    "+": ("sum", "[+]", operator.add),
    "-": ("difference", "[-]", operator.sub),
    "*": ("product", "[*x×·]", operator.mul),
}
"""Each by its sign: its result, how it may be typed, and what computes it."""
COMMUTES = ("+", "*")
TOKENIZER = CharTokenizer("0123456789")
LIMIT = 2  # of y = slope · x + offset, where slope, x and offset are between −1 and 1

Digits = Annotated[int, Within(1, 9)]
Pair = tuple[int, int]


def _arithmetic(
    name: str, sign: str, doc: str, *, usual_validation: int, usual_held_out: int, **others: Any
) -> Callable[..., Task]:
    """Return what builds the task of one operation."""

    def build(
        *,
        seed: Seed = 0,
        digits: Digits = 2,
        reverse: bool = True,
        train: Count | None = None,
        validation: Annotated[int, Within(0)] = usual_validation,
        held_out: Count = usual_held_out,
    ) -> Task:
        splits = _draw_pairs(seed, digits, train, validation, held_out)
        places = digits + 1 if sign == "+" else 2 * digits  # of the answer, with zeros in front
        compute, order = OPERATIONS[sign][2], slice(None, None, -1 if reverse else 1)

        def written(a: int, b: int) -> str:
            return f"{a:0{digits}}{b:0{digits}}"

        return question_task(
            name,
            "decoder",
            Lexicon(TOKENIZER),
            splits.map(lambda pair: (written(*pair), f"{compute(*pair):0{places}}"[order])),
            lambda typed: written(*_read_pair(typed, sign, 10**digits)),
            decode_answer=lambda ids: str(int(TOKENIZER.decode(np.asarray(ids)[:places])[order])),
            prompts=tuple(f"{a}{sign}{b}" for a, b in splits.held_out[:3]),
            notes=(
                f"{len(splits.train):,} pairs to train on, {len(splits.held_out):,} held out, both orders together",
            ),
            **others,
        )

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


addition = _arithmetic(
    "addition",
    "+",
    """Build the task from ordered pairs, with two digits all 10,000: 85 + 50 = 135 is the string 8550531.

    digits       of both numbers, 1 to 9
    reverse      let the sum begin with its last digit, as when one adds by hand
    train        ordered pairs to train on; None: all that are left, 50,000 at most
    validation   unordered pairs to choose settings by; 0: the held-out ones serve
    held_out     unordered pairs: a + b and b + a are held out together, or one would give the other away
    """,
    usual_validation=0,
    usual_held_out=1000,
    settings={"width": 128, "heads": 4, "layers": 2, "tied_head": False},
    recipe=recipe(steps=1000, batch=256, lr=2e-3, warmup=100),
)
multiplication = _arithmetic(
    "multiplication",
    "*",
    """Build the task from ordered pairs, with two digits all 10,000: 12 · 34 = 408 is the string 12348040.

    digits       of both numbers, 1 to 9
    reverse      let the product begin with its last digit, as when one multiplies by hand
    train        ordered pairs to train on; None: all that are left, 50,000 at most
    validation   unordered pairs to choose settings by; 0: the held-out ones serve
    held_out     unordered pairs: a · b and b · a are held out together, or one would give the other away

    Multiplying is much harder to learn than adding: every digit of a product depends on all digits of both numbers.
    """,
    usual_validation=250,
    usual_held_out=250,
    settings={"width": 96, "heads": 4, "layers": 2, "tied_head": False},
    # Without this much decay and batches this large, the pairs are learned by heart.
    recipe=recipe(steps=1000, batch=512, lr=4e-3, warmup=100, weight_decay=1.0),
)


def modular(
    *,
    seed: Seed = 0,
    modulus: Annotated[int, Within(2, 997)] = 97,
    fraction: float = 0.5,
    operation: Literal["+", "-", "*"] = "+",
) -> Task:
    """Build the task from the whole table of an operation: 60 + 50 = is answered with 13 (modulo 97).

    modulus     2 to 997; each number is one token
    fraction    of the table to train on; the rest is cut in half, to choose settings by and to test on
    operation   +, - or *

    a + b and b + a are in the same part, or one would give the other away. With a smaller fraction, a smaller
    weight_decay or a larger modulus, the training part is known by heart long before the rest is understood.
    """
    check_known("operation is", operation, OPERATIONS)
    share: Any = fraction
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise ConfigError(f"fraction is {fraction!r}", hint="use a number above 0 and below 1, such as 0.5")

    def answered(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
        compute = OPERATIONS[operation][2]
        ordered = _both_orders(pairs) if operation in COMMUTES else pairs
        return [(f"{a} {operation} {b} =", str(compute(a, b) % modulus)) for a, b in ordered]

    def read(typed: str) -> str:
        a, b = _read_pair(typed, operation, modulus)
        return f"{a} {operation} {b} ="

    numbers = range(modulus)
    commuting = itertools.combinations_with_replacement(numbers, 2)
    pairs = list(commuting if operation in COMMUTES else itertools.product(numbers, numbers))
    cut = round(fraction * len(pairs))
    half = cut + (len(pairs) - cut) // 2
    if not 0 < cut < half < len(pairs):
        raise ConfigError(
            f"a fraction of {fraction} of {len(pairs)} pairs leaves a part empty", hint="use a larger modulus"
        )
    order = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    return question_task(
        "modular",
        "decoder",
        Lexicon(WordTokenizer([*map(str, numbers), operation, "="])),
        Splits(answered(order[:cut]), answered(order[cut:half]), answered(order[half:])),
        read,
        settings={"width": 128, "heads": 4, "layers": 1, "tied_head": False},
        recipe=recipe(
            steps=2000, batch=512, lr=2e-3, beta2=0.98, schedule="constant", warmup=10, weight_decay=1.0, eval_every=100
        ),
    )


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
    drawn = _draw_points(np.random.default_rng(seed), train + validation + held_out, points + 1, resolution)
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
        encode_input=lambda typed: Batch(_read_points(typed, tokenizer, points, resolution)[None]),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:1]),
        prompts=tuple(tokenizer.decode(row) for row in testing.rows.tokens[:3]),
        notes=(Splits(*map(list, cuts)).note, f"least squares on the same numbers gets {share:.1%} of the test right"),
    )  # fmt: skip


# --- pairs of numbers -------------------------------------------------------------------------------------------------


def _draw_pairs(seed: int, digits: int, train: int | None, validation: int, held_out: int) -> Splits:
    """Return ordered pairs; both orders of a pair are in the same part."""
    most = 10**digits * (10**digits + 1) // 2
    if held_out >= most - validation:
        hint = f"there are {most:,} different pairs: use 1 to {max(1, most - validation - 1):,}"
        raise ConfigError(f"{held_out} held-out pairs", hint=hint)
    wanted = TRAIN if train is None else train
    order = _unordered(seed, digits, held_out + validation + wanted)
    cuts = (order[held_out + validation :], order[held_out : held_out + validation], order[:held_out])
    splits = Splits(*map(_both_orders, cuts))
    if train is not None and len(splits.train) < train:
        raise ConfigError(f"train is {train:,}, but only {len(splits.train):,} pairs are left", hint="lower train")
    return splits._replace(train=splits.train[:wanted])


def _unordered(seed: int, digits: int, wanted: int) -> list[Pair]:
    """Return different unordered pairs in random order: of few digits all, of many about as many as are wanted."""
    rng = np.random.default_rng(seed)
    if digits <= LISTED:
        every = list(itertools.combinations_with_replacement(range(10**digits), 2))
        return [every[i] for i in rng.permutation(len(every))]
    drawn = np.sort(rng.integers(10**digits, size=(wanted, 2)), axis=1)
    return list(dict.fromkeys((int(a), int(b)) for a, b in drawn))


def _both_orders(pairs: Iterable[Pair]) -> list[Pair]:
    return [ordered for a, b in pairs for ordered in dict.fromkeys([(a, b), (b, a)])]


def _read_pair(typed: str, sign: str, limit: int) -> Pair:
    """Read two numbers below a limit, such as 85+50."""
    result, signs, _ = OPERATIONS[sign]
    match = re.fullmatch(rf"\s*(\d{{1,9}})\s*{signs}\s*(\d{{1,9}})\s*=?\s*", typed, re.ASCII)
    if match is None or max(int(match[1]), int(match[2])) >= limit:
        hint = f"type it like this: 1{sign}{limit - 1}"
        raise DataError(f"{typed!r} is no {result} of two numbers below {limit:,}", hint=hint)
    return int(match[1]), int(match[2])


# --- points on a line -------------------------------------------------------------------------------------------------


def least_squares(points: Array) -> Array:
    """Return the bin of the last y of each sequence (N, points, 2), by the line closest to the points before it."""
    x, y = np.moveaxis(points[:, :-1].astype(float), -1, 0)
    around = x - x.mean(axis=1, keepdims=True)
    # Where all x are alike, their mean y is the best guess.
    slope = (around * y).sum(axis=1) / np.maximum((around * around).sum(axis=1), 1e-9)
    return np.rint(y.mean(axis=1) + slope * (points[:, -1, 0] - x.mean(axis=1))).astype(np.int64)


def _draw_points(rng: np.random.Generator, count: int, points: int, resolution: int) -> Array:
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


def _read_points(typed: str, tokenizer: WordTokenizer, points: int, resolution: int) -> Array:
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
