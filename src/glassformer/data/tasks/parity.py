"""Is the number of ones even or odd: easy in steps, very hard at once."""

import numpy as np

from ...errors import DataError
from ...text.chars import CharTokenizer
from ..examples import check_seed
from ..question_tasks import decoder_task
from ..splits import check_flag, check_whole, draw_splits
from ..task import Task, recipe

MOST_BITS = 64


def parity(
    *,
    seed: int = 0,
    bits: int = 16,
    in_steps: bool = True,
    train: int | None = None,
    validation: int | None = None,
    held_out: int | None = None,
) -> Task:
    """Build the task: 1101= is answered with 1001, whose last digit is the parity.

    bits       of each question, 4 to 64
    in_steps   write the parity of the first bit, of the first two, … of all; false: the last of them alone, which
               depends on every bit at once, and is hardly ever learned from 16 bits on
    train, validation, held_out   20,000, 1,000 and 1,000 questions, or all there are
    """
    check_seed(seed)
    check_whole("bits", bits, least=4, most=MOST_BITS)
    check_flag("in_steps", in_steps)
    rng = np.random.default_rng(seed)

    def question(typed: str) -> str:
        text = "".join(typed.split()).removesuffix("=")
        if len(text) != bits:
            raise DataError(f"{text!r} has {len(text)} bits", hint=f"type {bits} of 0 and 1")
        return text + "="

    def answer(asked: str) -> str:
        ones = np.cumsum([digit == "1" for digit in asked[:-1]]) % 2
        return "".join(map(str, ones if in_steps else ones[-1:]))

    splits = draw_splits(
        lambda: "".join(map(str, rng.integers(2, size=bits))) + "=",
        asked=(train, validation, held_out),
        usual=(20_000, 1000, 1000),
    )
    tokenizer, length = CharTokenizer("01="), bits if in_steps else 1
    return decoder_task(
        "parity",
        tokenizer,
        splits,
        question,
        answer,
        settings={"width": 64, "heads": 4, "layers": 2},
        recipe=recipe(steps=1500, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:length]),
        prompts=tuple(question[:-1] for question in splits.held_out[:3]),
        notes=(splits.note,),
    )
