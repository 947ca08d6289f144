"""Strings that are answered by strings: copied, written backward, sorted, or continued.

What attention to one position can do, and a fixed mapping cannot. Sorting is one of minGPT's demonstrations. A random
sequence that repeats is continued by induction heads: what comes next is what came next the last time.
"""

import itertools
import string
from collections.abc import Callable
from typing import Annotated

import numpy as np

from ...core.errors import DataError
from ...core.setting import check_count
from ...text.symbols import CharTokenizer
from ..question_tasks import Count, Lexicon, Seed, Splits, Within, draw_splits, hash_fraction, question_task, reading
from ..task import Task, recipe

ALPHABET, SHORTEST, LONGEST, EQUALS = "abcdefghij", 3, 10, "="  # of `copy` and `reverse`
HELD_OUT_STRINGS = 0.1
LENGTH, DIGITS = 6, "012"  # of `sort`
HELD_OUT_SORTS = 0.25
SYMBOLS = string.ascii_lowercase + string.ascii_uppercase + string.digits  # of `induction`


def copy(*, seed: Seed = 0, train: Count = 20000, held_out: Count = 1000) -> Task:
    """Build the task `copy`: abc= is answered with abc.

    train      strings to train on
    held_out   strings to be judged by
    """
    return _letters("copy", lambda text: text, seed, train, held_out)


def reverse(*, seed: Seed = 0, train: Count = 20000, held_out: Count = 1000) -> Task:
    """Build the task `reverse`: abc= is answered with cba.

    train      strings to train on
    held_out   strings to be judged by
    """
    return _letters("reverse", lambda text: text[::-1], seed, train, held_out)


def sort(*, seed: Seed = 0, held_out: Count = 5000) -> Task:
    """Build the task from all 729 inputs: a hash holds out about one in four, the others are trained on.

    held_out   cases to be judged by, drawn with replacement, because far fewer than 5,000 different ones exist
    """
    every = ["".join(digits) for digits in itertools.product(DIGITS, repeat=LENGTH)]
    seen = [text for text in every if hash_fraction(text) >= HELD_OUT_SORTS]
    unseen = [text for text in every if hash_fraction(text) < HELD_OUT_SORTS]
    drawn = [unseen[i] for i in np.random.default_rng(seed).integers(len(unseen), size=held_out)]
    return question_task(
        "sort",
        "decoder",
        Lexicon(CharTokenizer(DIGITS)),
        Splits(seen, [], drawn).answered(lambda asked: "".join(sorted(asked))),
        reading("digits", range(LENGTH, LENGTH + 1), f"{LENGTH} digits from {DIGITS}"),
        settings={"width": 48, "heads": 3, "layers": 3},
        recipe=recipe(steps=750, batch=64, lr=2e-3, warmup=100),
        notes=(f"{len(seen)} inputs to train on; {held_out:,} cases drawn from the {len(unseen)} inputs held out",),
    )


def induction(
    *,
    seed: Seed = 0,
    symbols: Annotated[int, Within(4, len(SYMBOLS))] = 26,
    longest: int = 12,
    train: Count | None = None,
    validation: Count | None = None,
    held_out: Count | None = None,
) -> Task:
    """Build the task: qfzbmkq is answered with fzbmkqfzbmkqfzbmk, 24 symbols in all.

    symbols    how many different ones there are, 4 to 62
    longest    the sequence has half of this to all of this many symbols, no two alike, and then begins again; its
               length varies, so that counting positions does not help
    train, validation, held_out   20,000, 1,000 and 1,000 sequences, or all there are

    Given are the sequence and the first symbol of its repetition; from there on, every symbol is certain.
    """
    check_count("longest", longest, least=2, most=symbols)
    rng = np.random.default_rng(seed)
    total = 2 * longest

    def draw() -> str:
        period = rng.integers(max(2, longest // 2), longest + 1)
        chosen = "".join(SYMBOLS[i] for i in rng.permutation(symbols)[:period])
        return chosen + chosen[0]

    tokenizer = CharTokenizer(SYMBOLS[:symbols])
    splits = draw_splits(draw, (train, validation, held_out))
    return question_task(
        "induction",
        "decoder",
        Lexicon(tokenizer),
        splits.answered(lambda asked: (asked[:-1] * total)[len(asked) : total]),
        reading("symbols", range(1, total), f"1 to {total - 1} letters, such as abcdefa"),
        settings={"context": total - 1, "width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=1000, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        decode_answer=tokenizer.decode,
    )


def _letters(name: str, answer: Callable[[str], str], seed: int, train: int, held_out: int) -> Task:
    tokenizer = CharTokenizer(ALPHABET + EQUALS, specials=("<eos>",))
    seen, unseen = _draw(seed, train, held_out)

    def read(typed: str) -> str:
        text = typed.strip()
        if not 1 <= len(text) <= LONGEST:
            raise DataError(f"{text!r} has {len(text)} letters", hint=f"type 1 to {LONGEST} letters from {ALPHABET}")
        return text + EQUALS

    return question_task(
        name,
        "decoder",
        Lexicon(tokenizer, end_id=tokenizer.specials["<eos>"]),
        Splits(*([(text + EQUALS, answer(text)) for text in part] for part in (seen, [], unseen))),
        read,
        settings={"context": 2 * LONGEST + 2, "width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=2000, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        prompts=tuple(unseen[:3]),
        notes=(),
    )


def _draw(seed: int, train: int, held_out: int) -> tuple[list[str], list[str]]:
    """Draw strings of random length; a hash of the string itself decides on which side it belongs, for every seed."""
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
