"""A random sequence that repeats: what comes next is what came next the last time, which induction heads find."""

import string

import numpy as np

from ...errors import DataError
from ...text.chars import CharTokenizer
from ..examples import check_seed
from ..question_tasks import decoder_task
from ..splits import check_whole, draw_splits
from ..task import Task, recipe

SYMBOLS = string.ascii_lowercase + string.ascii_uppercase + string.digits


def induction(
    *,
    seed: int = 0,
    symbols: int = 26,
    longest: int = 12,
    train: int | None = None,
    validation: int | None = None,
    held_out: int | None = None,
) -> Task:
    """Build the task: qfzbmkq is answered with fzbmkqfzbmkqfzbmk, 24 symbols in all.

    symbols    how many different ones there are, 4 to 62
    longest    the sequence has half of this to all of this many symbols, no two alike, and then begins again; its
               length varies, so that counting positions does not help
    train, validation, held_out   20,000, 1,000 and 1,000 sequences, or all there are

    Given are the sequence and the first symbol of its repetition; from there on, every symbol is certain.
    """
    check_seed(seed)
    check_whole("symbols", symbols, least=4, most=len(SYMBOLS))
    check_whole("longest", longest, least=2, most=symbols)
    rng = np.random.default_rng(seed)
    total = 2 * longest

    def draw() -> str:
        period = rng.integers(max(2, longest // 2), longest + 1)
        chosen = "".join(SYMBOLS[i] for i in rng.permutation(symbols)[:period])
        return chosen + chosen[0]

    def question(typed: str) -> str:
        text = "".join(typed.split())
        if not 1 <= len(text) < total:
            raise DataError(f"{text!r} has {len(text)} symbols", hint=f"type 1 to {total - 1} letters, such as abcdefa")
        return text

    def answer(asked: str) -> str:
        return (asked[:-1] * total)[len(asked) : total]

    splits = draw_splits(draw, asked=(train, validation, held_out), usual=(20_000, 1000, 1000))
    tokenizer = CharTokenizer(SYMBOLS[:symbols])
    return decoder_task(
        "induction",
        tokenizer,
        splits,
        question,
        answer,
        settings={"context": total - 1, "width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=1000, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        decode_answer=tokenizer.decode,
        prompts=tuple(splits.held_out[:3]),
        notes=(splits.note,),
    )
