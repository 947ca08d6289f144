"""Arithmetic modulo a number, learned from a part of its table.

A model knows that part by heart long before it understands the rest: grokking (Power et al., 2022).
"""

import itertools
import re
from typing import Any, Literal

import numpy as np

from ...errors import ConfigError, DataError
from ...settings import check_known
from ...text.words import WordTokenizer
from ..examples import check_seed
from ..question_tasks import decoder_task
from ..splits import Splits, check_whole
from ..task import Task, recipe

OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
COMMUTES = ("+", "*")
MOST = 997


def modular(
    *, seed: int = 0, modulus: int = 97, fraction: float = 0.5, operation: Literal["+", "-", "*"] = "+"
) -> Task:
    """Build the task from the whole table of an operation: 60 + 50 = is answered with 13 (modulo 97).

    modulus     2 to 997; each number is one token
    fraction    of the table to train on; the rest is cut in half, to choose settings by and to test on
    operation   +, - or *

    a + b and b + a are in the same part, or one would give the other away. With a smaller fraction, a smaller
    weight_decay or a larger modulus, the training part is known by heart long before the rest is understood.
    """
    check_seed(seed)
    check_whole("modulus", modulus, least=2, most=MOST)
    check_known("operation is", operation, OPERATIONS)
    share: Any = fraction
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise ConfigError(f"fraction is {fraction!r}", hint="use a number above 0 and below 1, such as 0.5")
    splits = _splits(seed, modulus, fraction, operation)
    tokenizer = WordTokenizer([*map(str, range(modulus)), operation, "="])

    def question(typed: str) -> str:
        match = re.fullmatch(rf"\s*(\d+)\s*{re.escape(operation)}\s*(\d+)\s*=?\s*", typed, re.ASCII)
        if match is None or max(int(match[1]), int(match[2])) >= modulus:
            fact = f"{typed!r} does not combine two numbers below {modulus} by {operation}"
            raise DataError(fact, hint=f"type it like this: 1{operation}{modulus - 1}")
        return f"{int(match[1])} {operation} {int(match[2])} ="

    def answer(asked: str) -> str:
        a, _, b, _ = asked.split()
        return str(OPERATIONS[operation](int(a), int(b)) % modulus)

    return decoder_task(
        "modular",
        tokenizer,
        splits,
        question,
        answer,
        settings={"width": 128, "heads": 4, "layers": 1, "tied_head": False},
        recipe=recipe(
            steps=2000, batch=512, lr=2e-3, beta2=0.98, schedule="constant", warmup=10, weight_decay=1.0, eval_every=100
        ),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:1]),
        prompts=tuple(splits.held_out[:3]),
        notes=(splits.note,),
    )


def _splits(seed: int, modulus: int, fraction: float, operation: str) -> Splits:
    numbers = range(modulus)
    if operation in COMMUTES:
        pairs = list(itertools.combinations_with_replacement(numbers, 2))
    else:
        pairs = list(itertools.product(numbers, numbers))
    cut = round(fraction * len(pairs))
    half = cut + (len(pairs) - cut) // 2
    if not 0 < cut < half < len(pairs):
        raise ConfigError(
            f"a fraction of {fraction} of {len(pairs)} pairs leaves a part empty", hint="use a larger modulus"
        )
    order = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]

    def both(chosen: list[tuple[int, int]]) -> list[str]:
        ways = [(a, b) for a, b in chosen]
        if operation in COMMUTES:
            ways = [way for a, b in chosen for way in dict.fromkeys([(a, b), (b, a)])]
        return [f"{a} {operation} {b} =" for a, b in ways]

    return Splits(both(order[:cut]), both(order[cut:half]), both(order[half:]))
