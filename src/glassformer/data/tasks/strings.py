"""Strings that are answered by strings: copied, written backward, or sorted.

What attention to one position can do, and a fixed mapping cannot. Sorting is one of minGPT's demonstrations.
"""

import itertools
from collections.abc import Callable

import numpy as np

from ...errors import ConfigError, DataError
from ...text.chars import CharTokenizer
from ..examples import check_seed, hash_fraction
from ..question_tasks import decoder_task
from ..splits import Splits
from ..task import Task, recipe, until

ALPHABET, SHORTEST, LONGEST, EQUALS = "abcdefghij", 3, 10, "="  # of `copy` and `reverse`
HELD_OUT_STRINGS = 0.1
LENGTH, DIGITS = 6, "012"  # of `sort`
HELD_OUT_SORTS = 0.25


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

    return decoder_task(
        "sort",
        tokenizer,
        Splits(seen, [], drawn),
        question,
        lambda asked: "".join(sorted(asked)),
        settings={"context": 2 * LENGTH - 1, "width": 48, "heads": 3, "layers": 3},
        recipe=recipe(steps=750, batch=64, lr=2e-3, warmup=100),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:LENGTH]),
        prompts=tuple(drawn[:3]),
        notes=(f"{len(seen)} inputs to train on; {held_out:,} cases drawn from the {len(unseen)} inputs held out",),
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

    return decoder_task(
        name,
        tokenizer,
        Splits([text + EQUALS for text in seen], [], [text + EQUALS for text in unseen]),
        question,
        lambda asked: answer(asked.removesuffix(EQUALS)),
        end=[eos],
        settings={"context": 2 * LONGEST + 2, "width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=2000, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        decode_answer=lambda ids: tokenizer.decode(until(ids, eos)),
        prompts=tuple(unseen[:3]),
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
