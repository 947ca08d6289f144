"""Sort six digits, as minGPT's demonstration does: the input, then the same digits in order."""

from __future__ import annotations

import itertools

import numpy as np

from ...errors import ConfigError, DataError
from ...models.batch import Batch
from ...text.chars import CharTokenizer
from ..splitting import check_seed, hash_fraction
from ..stacking import decoder_examples, encode_each
from ..task import Task, recipe

SUMMARY = "sort 6 digits from {0, 1, 2}"
LENGTH, DIGITS = 6, "012"
HELD_OUT_SHARE = 0.25


def sort(*, seed: int = 0, held_out: int = 5000) -> Task:
    """Build the task from all 729 inputs: a hash holds out about one in four, the others are trained on.

    The held-out cases are drawn with replacement, because far fewer than 5,000 different ones exist.
    """
    check_seed(seed)
    if held_out < 1:
        raise ConfigError(f"{held_out} held-out cases", hint="use at least 1")
    every = ["".join(digits) for digits in itertools.product(DIGITS, repeat=LENGTH)]
    seen = [text for text in every if hash_fraction(text) >= HELD_OUT_SHARE]
    unseen = [text for text in every if hash_fraction(text) < HELD_OUT_SHARE]
    drawn = [unseen[i] for i in np.random.default_rng(seed).integers(len(unseen), size=held_out)]
    tokenizer = CharTokenizer(DIGITS)

    def examples(texts: list[str]):
        sequences = encode_each(tokenizer, [text + "".join(sorted(text)) for text in texts])
        return decoder_examples(sequences, [LENGTH] * len(texts))

    return Task(
        name="sort",
        summary=SUMMARY,
        architecture="decoder",
        tokenizer=tokenizer,
        train=examples(seen),
        held_out=examples(drawn),
        settings={
            "vocab": tokenizer.size, "context": 2 * LENGTH - 1, "width": 48, "heads": 3, "layers": 3,
            "positions": "learned", "activation": "gelu_tanh",
        },
        recipe=recipe(steps=750, batch=64, lr=2e-3, warmup=100),
        metric="sequence",
        encode_input=lambda text: Batch(tokenizer.encode(_checked("".join(text.split())))[None]),
        decode_answer=lambda ids: tokenizer.decode(np.asarray(ids)[:LENGTH]),
        prompts=tuple(drawn[:3]),
        notes=(f"{len(seen)} inputs to train on; {held_out:,} cases drawn from the {len(unseen)} inputs held out",),
    )  # fmt: skip


def _checked(text: str) -> str:
    if len(text) != LENGTH:
        raise DataError(f"{text!r} has {len(text)} digits", hint=f"type {LENGTH} digits from {DIGITS}")
    return text
