"""Tasks that count: on from 1, which token occurs most, whether ones are even, whether brackets match."""

import itertools
from typing import Annotated

import numpy as np

from ...core.errors import ConfigError
from ...text.symbols import CharTokenizer, WordTokenizer
from ..question_tasks import Count, Lexicon, Seed, Splits, Within, draw_splits, question_task, reading
from ..task import Task, recipe, until

VOCAB = 20  # of `counting`
LENGTH, TOKENS = 8, "012"  # of `majority`
BRACKETS = ("()", "[]", "{}", "<>")


def counting(*, seed: Seed = 0, last: int = 6) -> Task:
    """Build the task: its whole data is one sequence, so what it measures is memory, and nothing is held out.

    last   the number to count to
    """
    del seed  # nothing is drawn
    tokenizer = WordTokenizer([str(number) for number in range(max(VOCAB, last + 1))])
    sequence = [("1", " ".join(str(number) for number in range(2, last + 1)))]
    return question_task(
        "counting",
        "decoder",
        Lexicon(tokenizer),
        Splits(sequence, [], sequence),
        str,
        settings={
            "context": last, "width": 32, "heads": 4, "feed_forward": 64, "layers": 1, "activation": "relu",
            "norm_position": "post", "feed_forward_bias": False, "tied_head": False, "positions": "sinusoidal",
        },
        recipe=recipe(
            steps=300, batch=1, optimizer="sgd", lr=0.05, schedule="constant", warmup=0, weight_decay=0.0, clip=0.0,
            eval_every=50,
        ),
        # Up to and including the last number, after which there is nothing to count.
        decode_answer=lambda ids: tokenizer.decode(ids[: len(until(ids, last)) + 1]),
        notes=("the whole data is one sequence: the score measures memory, and nothing is held out",),
    )  # fmt: skip


def majority(*, seed: Seed = 0, train: Count = 1600, held_out: Count = 400) -> Task:
    """Build the task from distinct random sequences, so that none of the held-out ones was ever trained on.

    train      sequences to train on
    held_out   sequences to be judged by

    Every position counts alike, so with CLS pooling the model must attend to all of them; a mean pools them without.
    """
    every = ["".join(tokens) for tokens in itertools.product(TOKENS, repeat=LENGTH)]
    if train + held_out > len(every):
        raise ConfigError(
            f"{train:,} sequences to train on, {held_out:,} held out", hint=f"there are {len(every):,} different ones"
        )
    chosen = [every[i] for i in np.random.default_rng(seed).permutation(len(every))[: train + held_out]]
    return question_task(
        "majority",
        "encoder",
        Lexicon(CharTokenizer(TOKENS)),
        # `max` takes the first of equals, the smallest.
        Splits(chosen[:train], [], chosen[train:]).answered(lambda text: max(TOKENS, key=text.count)),
        lambda typed: "".join(typed.split()),
        classes=TOKENS,
        settings={
            "width": 32, "heads": 4, "feed_forward": 64, "layers": 1, "pooling": "mean", "positions": "sinusoidal",
        },
        recipe=recipe(steps=600, batch=32, lr=3e-3, weight_decay=0.01, eval_every=100),
        prompts=("00112220", "21021021", "11110222"),
        notes=(),
    )  # fmt: skip


def parity(
    *,
    seed: Seed = 0,
    bits: Annotated[int, Within(4, 64)] = 16,
    in_steps: bool = True,
    train: Count | None = None,
    validation: Count | None = None,
    held_out: Count | None = None,
) -> Task:
    """Build the task: 1101= is answered with 1001, whose last digit is the parity.

    bits       of each question, 4 to 64
    in_steps   write the parity of the first bit, of the first two, … of all; false: the last of them alone, which
               depends on every bit at once, and is hardly ever learned from 16 bits on
    train, validation, held_out   20,000, 1,000 and 1,000 questions, or all there are
    """
    rng = np.random.default_rng(seed)

    def answer(asked: str) -> str:
        ones = np.cumsum([digit == "1" for digit in asked[:-1]]) % 2
        return "".join(map(str, ones if in_steps else ones[-1:]))

    splits = draw_splits(lambda: "".join(map(str, rng.integers(2, size=bits))) + "=", (train, validation, held_out))
    return question_task(
        "parity",
        "decoder",
        Lexicon(CharTokenizer("01=")),
        splits.answered(answer),
        reading("bits", range(bits, bits + 1), f"{bits} of 0 and 1", end="="),
        settings={"width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=1500, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        prompts=tuple(question[:-1] for question in splits.held_out[:3]),
    )


def brackets(
    *,
    seed: Seed = 0,
    kinds: Annotated[int, Within(1, len(BRACKETS))] = 2,
    longest: Annotated[int, Within(4, 64)] = 12,
    train: Count | None = None,
    validation: Count | None = None,
    held_out: Count | None = None,
) -> Task:
    """Build the task: ([])[] is balanced, ([)] is wrong.

    kinds     of brackets, 1 to 4
    longest   how many brackets there are at most, 4 to 64; their number is even
    train, validation, held_out   20,000, 1,000 and 1,000 strings, or all there are

    Half of the strings are balanced. The others come from balanced ones, by one bracket replaced or two exchanged, so
    that counting alone does not tell them apart. It is the language of Dyck, which needs a stack, or attention that
    does the work of one.
    """
    rng, known = np.random.default_rng(seed), "".join(BRACKETS[:kinds])

    def draw() -> str:
        text = _balanced(rng, kinds, int(rng.integers(1, longest // 2 + 1)))
        return text if rng.random() < 0.5 else _spoiled(rng, text, known)

    splits = draw_splits(draw, (train, validation, held_out))
    return question_task(
        "brackets",
        "encoder",
        Lexicon(CharTokenizer(known, specials=("<pad>",))),
        splits.answered(lambda text: "balanced" if is_balanced(text) else "wrong"),
        reading("brackets", range(1, longest + 1), f"1 to {longest} of {known}"),
        classes=("wrong", "balanced"),
        settings={"context": longest, "width": 48, "heads": 4, "layers": 4, "pooling": "mean"},
        recipe=recipe(steps=1500, batch=64, lr=1e-3, warmup=100, weight_decay=0.01),
    )


def is_balanced(text: str) -> bool:
    """Tell whether every bracket is closed by one of its kind, in order."""
    closing = {pair[0]: pair[1] for pair in BRACKETS}
    expected: list[str] = []
    for bracket in text:
        if bracket in closing:
            expected.append(closing[bracket])
        elif not expected or expected.pop() != bracket:
            return False
    return not expected


def _balanced(rng: np.random.Generator, kinds: int, pairs: int) -> str:
    """Open or close at random, as long as both are possible."""
    text: list[str] = []
    closing: list[str] = []
    still = pairs
    while still or closing:
        if still and (not closing or rng.random() < 0.5):
            chosen = BRACKETS[rng.integers(kinds)]
            text.append(chosen[0])
            closing.append(chosen[1])
            still -= 1
        else:
            text.append(closing.pop())
    return "".join(text)


def _spoiled(rng: np.random.Generator, text: str, known: str) -> str:
    """Replace a bracket, or exchange two, until the string is wrong."""
    while True:
        letters = list(text)
        first, second = rng.integers(len(letters), size=2)
        if rng.random() < 0.5:
            letters[first] = known[rng.integers(len(known))]
        else:
            letters[first], letters[second] = letters[second], letters[first]
        spoiled = "".join(letters)
        if not is_balanced(spoiled):
            return spoiled
