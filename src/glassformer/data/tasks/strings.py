"""Tasks of short strings: copied, written backward, sorted, continued, counted, and told apart.

Copying is what attention to one position can do, and a fixed mapping cannot. Sorting is one of minGPT's demonstrations.
A random sequence that repeats is continued by induction heads: what comes next is what came next the last time.
"""

import itertools
import string
from collections.abc import Callable
from typing import Annotated

import numpy as np

from ...core.errors import ConfigError, DataError
from ...core.settings import Within, check_count
from ...text.symbols import CharTokenizer, WordTokenizer
from ..splits import Splits, draw_splits, hash_fraction
from ..task import Count, Lexicon, Seed, Task, question_task, reading, recipe, until

ALPHABET, SHORTEST, LONGEST, EQUALS = "abcdefghij", 3, 10, "="  # of `copy` and `reverse`
HELD_OUT_STRINGS = 0.1
SORTED, DIGITS = 6, "012"  # of `sort`
HELD_OUT_SORTS = 0.25
SYMBOLS = string.ascii_lowercase + string.ascii_uppercase + string.digits  # of `induction`
VOCAB = 20  # of `counting`
LENGTH, TOKENS = 8, "012"  # of `majority`
BRACKETS = ("()", "[]", "{}", "<>")


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
    every = ["".join(digits) for digits in itertools.product(DIGITS, repeat=SORTED)]
    seen = [text for text in every if hash_fraction(text) >= HELD_OUT_SORTS]
    unseen = [text for text in every if hash_fraction(text) < HELD_OUT_SORTS]
    drawn = [unseen[i] for i in np.random.default_rng(seed).integers(len(unseen), size=held_out)]
    return question_task(
        "sort",
        "decoder",
        Lexicon(CharTokenizer(DIGITS)),
        Splits(seen, [], drawn).answered(lambda asked: "".join(sorted(asked))),
        reading("digits", range(SORTED, SORTED + 1), f"{SORTED} digits from {DIGITS}"),
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


def is_balanced(text: str) -> bool:
    """Return whether every bracket is closed by one of its kind, in order."""
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
