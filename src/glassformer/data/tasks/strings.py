"""Strings that are answered by strings: copied, written backward, sorted, or added up.

What attention to one position can do, and a fixed mapping cannot. Sorting and adding are minGPT's demonstrations.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, DataError
from ...models.model import Batch
from ...text.chars import CharTokenizer
from ..examples import Examples, check_seed, decoder_examples, hash_fraction
from ..lexicon import encode_each
from ..task import Task, recipe, until

ALPHABET, SHORTEST, LONGEST, EQUALS = "abcdefghij", 3, 10, "="  # of `copy` and `reverse`
HELD_OUT_STRINGS = 0.1
LENGTH, DIGITS = 6, "012"  # of `sort`
HELD_OUT_SORTS = 0.25
PLACES = 2  # of the numbers that `addition` adds


def copy(*, seed: int = 0, train: int = 20000, held_out: int = 1000) -> Task:
    """Build the task `copy`: abc= is answered with abc.

    train      strings to train on
    held_out   strings to be judged by
    """
    return _letters("copy", lambda text: text, seed, train, held_out)


def reverse(*, seed: int = 0, train: int = 20000, held_out: int = 1000) -> Task:
    """Build the task `reverse`: abc= is answered with cba.

    train      strings to train on
    held_out   strings to be judged by
    """
    return _letters("reverse", lambda text: text[::-1], seed, train, held_out)


def sort(*, seed: int = 0, held_out: int = 5000) -> Task:
    """Build the task from all 729 inputs: a hash holds out about one in four, the others are trained on.

    held_out   cases to be judged by, drawn with replacement, because far fewer than 5,000 different ones exist
    """
    check_seed(seed)
    if held_out < 1:
        raise ConfigError(f"{held_out} held-out cases", hint="use at least 1")
    every = ["".join(digits) for digits in itertools.product(DIGITS, repeat=LENGTH)]
    seen = [text for text in every if hash_fraction(text) >= HELD_OUT_SORTS]
    unseen = [text for text in every if hash_fraction(text) < HELD_OUT_SORTS]
    drawn = [unseen[i] for i in np.random.default_rng(seed).integers(len(unseen), size=held_out)]
    tokenizer = CharTokenizer(DIGITS)

    def question(typed: str) -> str:
        text = "".join(typed.split())
        if len(text) != LENGTH:
            raise DataError(f"{text!r} has {len(text)} digits", hint=f"type {LENGTH} digits from {DIGITS}")
        return text

    return _task(
        "sort",
        tokenizer,
        (seen, drawn),
        question,
        lambda asked: "".join(sorted(asked)),
        settings={"context": 2 * LENGTH - 1, "width": 48, "heads": 3, "layers": 3},
        recipe=recipe(steps=750, batch=64, lr=2e-3, warmup=100),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:LENGTH]),
        prompts=tuple(drawn[:3]),
        notes=(f"{len(seen)} inputs to train on; {held_out:,} cases drawn from the {len(unseen)} inputs held out",),
    )


def addition(*, seed: int = 0, held_out: int = 1000) -> Task:
    """Build the task from all 10,000 ordered pairs: 85 + 50 = 135 is the string 8550531.

    held_out   unordered pairs to be judged by: a + b and b + a are held out together, or one would give the other away

    The sum begins with its last digit, as when one adds by hand.
    """
    check_seed(seed)
    pairs = list(itertools.combinations_with_replacement(range(10**PLACES), 2))
    if not 1 <= held_out < len(pairs):
        raise ConfigError(f"{held_out} held-out pairs", hint=f"use 1 to {len(pairs) - 1:,}")
    order = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    unseen, seen = (
        [both for a, b in part for both in dict.fromkeys([(a, b), (b, a)])]
        for part in (order[:held_out], order[held_out:])
    )
    tokenizer = CharTokenizer("0123456789")

    def written(a: int, b: int) -> str:
        return f"{a:0{PLACES}}{b:0{PLACES}}"

    def question(typed: str) -> str:
        match = re.fullmatch(r"\s*(\d{1,2})\s*\+\s*(\d{1,2})\s*=?\s*", typed, re.ASCII)
        if match is None:
            raise DataError(f"{typed!r} is no sum of two numbers below 100", hint="type it like this: 85+50")
        return written(int(match[1]), int(match[2]))

    return _task(
        "addition",
        tokenizer,
        ([written(a, b) for a, b in seen], [written(a, b) for a, b in unseen]),
        question,
        lambda asked: f"{int(asked[:PLACES]) + int(asked[PLACES:]):0{PLACES + 1}}"[::-1],
        settings={"context": 3 * PLACES, "width": 128, "heads": 4, "layers": 2, "tied_head": False},
        recipe=recipe(steps=1000, batch=256, lr=2e-3, warmup=100),
        decode_answer=lambda ids: str(int(tokenizer.decode(np.asarray(ids)[: PLACES + 1])[::-1])),
        prompts=tuple(f"{a}+{b}" for a, b in unseen[:3]),
        notes=(f"{len(seen):,} pairs to train on, {len(unseen):,} held out, both orders together",),
    )


def _letters(name: str, answer: Callable[[str], str], seed: int, train: int, held_out: int) -> Task:
    tokenizer = CharTokenizer(ALPHABET + EQUALS, specials=("<eos>",))
    eos = tokenizer.specials["<eos>"]
    seen, unseen = _draw(seed, train, held_out)

    def question(typed: str) -> str:
        text = typed.strip()
        if not 1 <= len(text) <= LONGEST:
            raise DataError(f"{text!r} has {len(text)} letters", hint=f"type 1 to {LONGEST} letters from {ALPHABET}")
        return text + EQUALS

    return _task(
        name,
        tokenizer,
        ([text + EQUALS for text in seen], [text + EQUALS for text in unseen]),
        question,
        lambda asked: answer(asked.removesuffix(EQUALS)),
        end=[eos],
        settings={"context": 2 * LONGEST + 2, "width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=2000, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        decode_answer=lambda ids: tokenizer.decode(until(ids, eos)),
        prompts=tuple(unseen[:3]),
    )


def _task(
    name: str,
    tokenizer: CharTokenizer,
    questions: tuple[list[str], list[str]],
    question: Callable[[str], str],
    answer: Callable[[str], str],
    *,
    settings: dict[str, Any],
    end: Sequence[int] = (),
    **others: Any,
) -> Task:
    """Build the task from the questions to train on and those held out.

    question   what was typed as a question
    answer     of a question; the tokens `end` follow it
    """

    def examples(chosen: list[str]) -> Examples:
        rows = encode_each(tokenizer, [asked + answer(asked) for asked in chosen])
        rows = [np.append(row, end) for row in rows] if end else rows
        return decoder_examples(rows, [len(asked) for asked in chosen], pad=end[0] if end else 0)

    train, held_out = map(examples, questions)
    return Task(
        name=name,
        architecture="decoder",
        tokenizer=tokenizer,
        train=train,
        held_out=held_out,
        settings={"vocab": tokenizer.size, "positions": "learned", "activation": "gelu_tanh", **settings},
        metric="sequence",
        encode_input=lambda typed: Batch(tokenizer.encode(question(typed))[None]),
        **others,
    )


def _draw(seed: int, train: int, held_out: int) -> tuple[list[str], list[str]]:
    """Draw strings of random length; a hash of the string itself decides on which side it belongs, for every seed."""
    check_seed(seed)
    if train < 1 or held_out < 1:
        raise ConfigError(f"{train:,} strings to train on and {held_out:,} held out", hint="use at least 1 of each")
    rng = np.random.default_rng(seed)
    seen: list[str] = []
    unseen: list[str] = []
    while len(seen) < train or len(unseen) < held_out:
        lengths = rng.integers(SHORTEST, LONGEST + 1, size=4096)
        letters = rng.integers(len(ALPHABET), size=(4096, LONGEST))
        for length, row in zip(lengths.tolist(), letters.tolist(), strict=True):
            text = "".join(ALPHABET[letter] for letter in row[:length])
            (unseen if hash_fraction(text) < HELD_OUT_STRINGS else seen).append(text)
    return seen[:train], unseen[:held_out]
