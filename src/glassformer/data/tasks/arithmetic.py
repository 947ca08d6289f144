"""Adding and multiplying numbers of n digits, and arithmetic modulo a number, learned from a part of its table.

Adding is one of minGPT's demonstrations. Of a table modulo a number, a model knows the training part by heart long
before it understands the rest: grokking (Power et al., 2022).
"""

import itertools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import numpy as np

from ...core.errors import ConfigError, DataError
from ...core.setting import check_known
from ...text.symbols import CharTokenizer, WordTokenizer
from ..question_tasks import Count, Lexicon, Seed, Splits, Within, question_task
from ..task import Task, recipe

LISTED = 2  # digits up to which all pairs are listed; beyond, some are drawn
TRAIN = 50_000  # pairs to train on at most, unless asked for
OPERATIONS: dict[str, tuple[str, str, Callable[[int, int], int]]] = {
    "+": ("sum", "[+]", operator.add),
    "-": ("difference", "[-]", operator.sub),
    "*": ("product", "[*x×·]", operator.mul),
}
"""Each by its sign: its result, how it may be typed, and what computes it."""
COMMUTES = ("+", "*")

Digits = Annotated[int, Within(1, 9)]
Pair = tuple[int, int]


def addition(
    *,
    seed: Seed = 0,
    digits: Digits = 2,
    reverse: bool = True,
    train: Count | None = None,
    validation: Annotated[int, Within(0)] = 0,
    held_out: Count = 1000,
) -> Task:
    """Build the task from ordered pairs, with two digits all 10,000: 85 + 50 = 135 is the string 8550531.

    digits       of both numbers, 1 to 9
    reverse      let the sum begin with its last digit, as when one adds by hand
    train        ordered pairs to train on; None: all that are left, 50,000 at most
    validation   unordered pairs to choose settings by; 0: the held-out ones serve
    held_out     unordered pairs: a + b and b + a are held out together, or one would give the other away
    """
    return _arithmetic(
        "addition",
        "+",
        _draw(seed, digits, train, validation, held_out),
        digits,
        digits + 1,
        reverse,
        settings={"width": 128, "heads": 4, "layers": 2, "tied_head": False},
        recipe=recipe(steps=1000, batch=256, lr=2e-3, warmup=100),
    )


def multiplication(
    *,
    seed: Seed = 0,
    digits: Digits = 2,
    reverse: bool = True,
    train: Count | None = None,
    validation: Annotated[int, Within(0)] = 250,
    held_out: Count = 250,
) -> Task:
    """Build the task from ordered pairs, with two digits all 10,000: 12 · 34 = 408 is the string 12348040.

    digits       of both numbers, 1 to 9
    reverse      let the product begin with its last digit, as when one multiplies by hand
    train        ordered pairs to train on; None: all that are left, 50,000 at most
    validation   unordered pairs to choose settings by; 0: the held-out ones serve
    held_out     unordered pairs: a · b and b · a are held out together, or one would give the other away

    Multiplying is much harder to learn than adding: every digit of a product depends on all digits of both numbers.
    """
    return _arithmetic(
        "multiplication",
        "*",
        _draw(seed, digits, train, validation, held_out),
        digits,
        2 * digits,
        reverse,
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
        a, b = _read(typed, operation, modulus)
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


def _arithmetic(name: str, sign: str, splits: Splits, digits: int, places: int, reverse: bool, **others: Any) -> Task:
    """Build the task; its answers have as many `places`, with zeros in front."""
    tokenizer = CharTokenizer("0123456789")
    compute, way = OPERATIONS[sign][2], -1 if reverse else 1

    def written(a: int, b: int) -> str:
        return f"{a:0{digits}}{b:0{digits}}"

    return question_task(
        name,
        "decoder",
        Lexicon(tokenizer),
        Splits(*([(written(a, b), f"{compute(a, b):0{places}}"[::way]) for a, b in part] for part in splits)),
        lambda typed: written(*_read(typed, sign, 10**digits)),
        decode_answer=lambda ids: str(int(tokenizer.decode(np.asarray(ids)[:places])[::way])),
        prompts=tuple(f"{a}{sign}{b}" for a, b in splits.held_out[:3]),
        notes=(f"{len(splits.train):,} pairs to train on, {len(splits.held_out):,} held out, both orders together",),
        **others,
    )


def _draw(seed: int, digits: int, train: int | None, validation: int, held_out: int) -> Splits:
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


def _read(typed: str, sign: str, limit: int) -> Pair:
    """Read two numbers below a limit, such as 85+50."""
    result, signs, _ = OPERATIONS[sign]
    match = re.fullmatch(rf"\s*(\d{{1,9}})\s*{signs}\s*(\d{{1,9}})\s*=?\s*", typed, re.ASCII)
    if match is None or max(int(match[1]), int(match[2])) >= limit:
        hint = f"type it like this: 1{sign}{limit - 1}"
        raise DataError(f"{typed!r} is no {result} of two numbers below {limit:,}", hint=hint)
    return int(match[1]), int(match[2])
