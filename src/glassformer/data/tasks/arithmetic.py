"""Adding and multiplying numbers of n digits. Adding is one of minGPT's demonstrations."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ConfigError, DataError
from ...text.chars import CharTokenizer
from ..examples import check_seed
from ..question_tasks import decoder_task
from ..splits import Splits, check_flag, check_whole
from ..task import Task, recipe

MOST_DIGITS = 9
LISTED = 2  # digits up to which all pairs are listed; beyond, some are drawn
TRAIN = 50_000  # pairs to train on at most, unless asked for

Pair = tuple[int, int]


def addition(
    *,
    seed: int = 0,
    digits: int = 2,
    reverse: bool = True,
    train: int | None = None,
    validation: int = 0,
    held_out: int = 1000,
) -> Task:
    """Build the task from ordered pairs, with two digits all 10,000: 85 + 50 = 135 is the string 8550531.

    digits       of both numbers, 1 to 9
    reverse      let the sum begin with its last digit, as when one adds by hand
    train        ordered pairs to train on; None: all that are left, 50,000 at most
    validation   unordered pairs to choose settings by; 0: the held-out ones serve
    held_out     unordered pairs: a + b and b + a are held out together, or one would give the other away
    """
    _check(seed, digits, reverse)
    return _arithmetic(
        "addition",
        "+",
        lambda a, b: a + b,
        digits + 1,
        (seed, digits, reverse),
        (train, validation, held_out),
        settings={"width": 128, "heads": 4, "layers": 2, "tied_head": False},
        recipe=recipe(steps=1000, batch=256, lr=2e-3, warmup=100),
    )


def multiplication(
    *,
    seed: int = 0,
    digits: int = 2,
    reverse: bool = True,
    train: int | None = None,
    validation: int = 250,
    held_out: int = 250,
) -> Task:
    """Build the task from ordered pairs, with two digits all 10,000: 12 · 34 = 408 is the string 12348040.

    digits       of both numbers, 1 to 9
    reverse      let the product begin with its last digit, as when one multiplies by hand
    train        ordered pairs to train on; None: all that are left, 50,000 at most
    validation   unordered pairs to choose settings by; 0: the held-out ones serve
    held_out     unordered pairs: a · b and b · a are held out together, or one would give the other away

    Multiplying is much harder to learn than adding: every digit of a product depends on all digits of both numbers.
    """
    _check(seed, digits, reverse)
    return _arithmetic(
        "multiplication",
        "*",
        lambda a, b: a * b,
        2 * digits,
        (seed, digits, reverse),
        (train, validation, held_out),
        settings={"width": 96, "heads": 4, "layers": 2, "tied_head": False},
        # Without this much decay and batches this large, the pairs are learned by heart.
        recipe=recipe(steps=1000, batch=512, lr=4e-3, warmup=100, weight_decay=1.0),
    )


def _check(seed: int, digits: int, reverse: bool) -> None:
    check_seed(seed)
    check_whole("digits", digits, least=1, most=MOST_DIGITS)
    check_flag("reverse", reverse)


def _arithmetic(
    name: str,
    sign: str,
    compute: Callable[[int, int], int],
    places: int,
    options: tuple[int, int, bool],
    sizes: tuple[int | None, int, int],
    **others: Any,
) -> Task:
    """Build the task; its answers have as many `places`, with zeros in front."""
    seed, digits, reverse = options
    splits = _pairs(seed, digits, sizes)
    tokenizer = CharTokenizer("0123456789")
    way = -1 if reverse else 1

    def written(pair: Pair) -> str:
        return f"{pair[0]:0{digits}}{pair[1]:0{digits}}"

    def answer(asked: str) -> str:
        return f"{compute(int(asked[:digits]), int(asked[digits:])):0{places}}"[::way]

    return decoder_task(
        name,
        tokenizer,
        Splits(*([written(pair) for pair in part] for part in splits)),
        lambda typed: written(_typed(typed, sign, digits)),
        answer,
        decode_answer=lambda ids: str(int(tokenizer.decode(np.asarray(ids)[:places])[::way])),
        prompts=tuple(f"{a}{sign}{b}" for a, b in splits.held_out[:3]),
        notes=(f"{len(splits.train):,} pairs to train on, {len(splits.held_out):,} held out, both orders together",),
        **others,
    )


def _pairs(seed: int, digits: int, sizes: tuple[int | None, int, int]) -> Splits:
    """Return ordered pairs; both orders of a pair are in the same part."""
    train, validation, held_out = sizes
    if train is not None:
        check_whole("train", train, least=1)
    most = 10**digits * (10**digits + 1) // 2
    check_whole("validation", validation, least=0)
    check_whole("held_out", held_out, least=1)
    if not 1 <= held_out < most - validation:
        hint = f"there are {most:,} different pairs: use 1 to {max(1, most - validation - 1):,}"
        raise ConfigError(f"{held_out} held-out pairs", hint=hint)
    order = _drawn(seed, digits, held_out + validation + (TRAIN if train is None else train))
    cuts = (order[held_out + validation :], order[held_out : held_out + validation], order[:held_out])
    splits = Splits(*([both for a, b in part for both in dict.fromkeys([(a, b), (b, a)])] for part in cuts))
    if train is not None and len(splits.train) < train:
        raise ConfigError(f"train is {train:,}, but only {len(splits.train):,} pairs are left", hint="lower train")
    return splits._replace(train=splits.train[: TRAIN if train is None else train])


def _drawn(seed: int, digits: int, wanted: int) -> list[Pair]:
    """Return different unordered pairs in random order: of few digits all, of many about as many as are wanted."""
    rng = np.random.default_rng(seed)
    if digits <= LISTED:
        every = list(itertools.combinations_with_replacement(range(10**digits), 2))
        return [every[i] for i in rng.permutation(len(every))]
    drawn = np.sort(rng.integers(10**digits, size=(wanted, 2)), axis=1)
    return list(dict.fromkeys((int(a), int(b)) for a, b in drawn))


def _typed(typed: str, sign: str, digits: int) -> Pair:
    """Read what was typed, such as 85+50."""
    number = rf"(\d{{1,{digits}}})"
    signs = re.escape(sign) if sign == "+" else "[*x×·]"
    match = re.fullmatch(rf"\s*{number}\s*{signs}\s*{number}\s*=?\s*", typed, re.ASCII)
    if match is None:
        what, example = ("sum", "85+50") if sign == "+" else ("product", "12*34")
        raise DataError(
            f"{typed!r} is no {what} of two numbers below {10**digits:,}", hint=f"type it like this: {example}"
        )
    return int(match[1]), int(match[2])
