"""Add two-digit numbers, as minGPT's adder does: 85 + 50 = 135 is the string 8550531."""

from __future__ import annotations

import itertools
import re

import numpy as np

from ...errors import ConfigError, DataError
from ...models.batch import Batch
from ...text.chars import CharTokenizer
from ..splitting import check_seed
from ..stacking import decoder_examples, encode_each
from ..task import Task, recipe

SUMMARY = "add two numbers of two digits"
DIGITS = 2


def addition(*, seed: int = 0, held_out: int = 1000) -> Task:
    """Build the task from all 10,000 ordered pairs.

    `held_out` counts unordered pairs: a + b and b + a are held out together, or one would give the other away.
    """
    check_seed(seed)
    pairs = list(itertools.combinations_with_replacement(range(10**DIGITS), 2))
    if not 1 <= held_out < len(pairs):
        raise ConfigError(f"{held_out} held-out pairs", hint=f"use 1 to {len(pairs) - 1:,}")
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    unseen = _both_orders([pairs[i] for i in order[:held_out]])
    seen = _both_orders([pairs[i] for i in order[held_out:]])
    tokenizer = CharTokenizer("0123456789")

    def examples(chosen: list[tuple[int, int]]):
        return decoder_examples(encode_each(tokenizer, [written(a, b) for a, b in chosen]), [2 * DIGITS] * len(chosen))

    return Task(
        name="addition",
        summary=SUMMARY,
        architecture="decoder",
        tokenizer=tokenizer,
        train=examples(seen),
        held_out=examples(unseen),
        settings={
            "vocab": 10, "context": 3 * DIGITS, "width": 128, "heads": 4, "layers": 2, "positions": "learned",
            "activation": "gelu_tanh", "tied_head": False,
        },
        recipe=recipe(steps=1000, batch=256, lr=2e-3, warmup=100),
        metric="sequence",
        encode_input=lambda text: Batch(tokenizer.encode(_question(text))[None]),
        decode_answer=lambda ids: str(int(tokenizer.decode(np.asarray(ids)[: DIGITS + 1])[::-1])),
        prompts=tuple(f"{a}+{b}" for a, b in unseen[:3]),
        notes=(f"{len(seen):,} pairs to train on, {len(unseen):,} held out, both orders together",),
    )  # fmt: skip


def written(a: int, b: int) -> str:
    """Return the numbers and their sum, its last digit first: the order in which one adds by hand."""
    return f"{a:0{DIGITS}}{b:0{DIGITS}}" + f"{a + b:0{DIGITS + 1}}"[::-1]


def _both_orders(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [both for a, b in pairs for both in dict.fromkeys([(a, b), (b, a)])]


def _question(text: str) -> str:
    match = re.fullmatch(r"\s*(\d{1,2})\s*\+\s*(\d{1,2})\s*=?\s*", text, re.ASCII)
    if match is None:
        raise DataError(f"{text!r} is no sum of two numbers below 100", hint="type it like this: 85+50")
    return f"{int(match[1]):0{DIGITS}}{int(match[2]):0{DIGITS}}"
