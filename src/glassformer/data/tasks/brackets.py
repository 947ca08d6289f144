"""Do the brackets match: the language of Dyck, which needs a stack, or attention that does the work of one."""

import numpy as np

from ...errors import DataError
from ...text.chars import CharTokenizer
from ..examples import check_seed
from ..question_tasks import classifier_task
from ..splits import check_whole, draw_splits
from ..task import Task, recipe

KINDS = ("()", "[]", "{}", "<>")
CLASSES = ("wrong", "balanced")


def brackets(
    *,
    seed: int = 0,
    kinds: int = 2,
    longest: int = 12,
    train: int | None = None,
    validation: int | None = None,
    held_out: int | None = None,
) -> Task:
    """Build the task: ([])[] is balanced, ([)] is wrong.

    kinds     of brackets, 1 to 4
    longest   how many brackets there are at most, 4 to 64; their number is even
    train, validation, held_out   20,000, 1,000 and 1,000 strings, or all there are

    Half of the strings are balanced. The others come from balanced ones, by one bracket replaced or two exchanged, so
    that counting alone does not tell them apart.
    """
    check_seed(seed)
    check_whole("kinds", kinds, least=1, most=len(KINDS))
    check_whole("longest", longest, least=4, most=64)
    rng, known = np.random.default_rng(seed), "".join(KINDS[:kinds])

    def question(typed: str) -> str:
        text = "".join(typed.split())
        if not 1 <= len(text) <= longest:
            raise DataError(f"{text!r} has {len(text)} brackets", hint=f"type 1 to {longest} of {known}")
        return text

    splits = draw_splits(
        lambda: _draw(rng, kinds, longest), asked=(train, validation, held_out), usual=(20_000, 1000, 1000)
    )
    return classifier_task(
        "brackets",
        CharTokenizer(known, specials=("<pad>",)),
        splits,
        question,
        lambda text: CLASSES[is_balanced(text)],
        CLASSES,
        settings={"context": longest, "width": 48, "heads": 4, "layers": 4, "pooling": "mean"},
        recipe=recipe(steps=1500, batch=64, lr=1e-3, warmup=100, weight_decay=0.01),
        prompts=tuple(splits.held_out[:3]),
        notes=(splits.note,),
    )


def is_balanced(text: str) -> bool:
    """Tell whether every bracket is closed by one of its kind, in order."""
    closing = {kind[0]: kind[1] for kind in KINDS}
    expected: list[str] = []
    for bracket in text:
        if bracket in closing:
            expected.append(closing[bracket])
        elif not expected or expected.pop() != bracket:
            return False
    return not expected


def _draw(rng: np.random.Generator, kinds: int, longest: int) -> str:
    half = int(rng.integers(1, longest // 2 + 1))
    text = _balanced(rng, kinds, half)
    return text if rng.random() < 0.5 else _spoiled(rng, text, "".join(KINDS[:kinds]))


def _balanced(rng: np.random.Generator, kinds: int, pairs: int) -> str:
    """Open or close at random, as long as both are possible."""
    text: list[str] = []
    closing: list[str] = []
    still = pairs
    while still or closing:
        if still and (not closing or rng.random() < 0.5):
            chosen = KINDS[rng.integers(kinds)]
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
