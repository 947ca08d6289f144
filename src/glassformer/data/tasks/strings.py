"""Copy a string, or write it backward: what attention to one position can do, and a fixed mapping cannot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ConfigError, DataError
from ...models.batch import Batch
from ...text.chars import CharTokenizer
from ..splitting import check_seed, hash_fraction
from ..stacking import decoder_examples, encode_each
from ..task import Task, recipe, until

COPY_SUMMARY = "repeat a string of letters"
REVERSE_SUMMARY = "write a string of letters backward"
ALPHABET = "abcdefghij"
SHORTEST, LONGEST = 3, 10
EQUALS = "="
HELD_OUT_SHARE = 0.1


def copy(*, seed: int = 0, train: int = 20000, held_out: int = 1000) -> Task:
    """Build the task `copy`: abc= is answered with abc."""
    return _string_task("copy", COPY_SUMMARY, lambda text: text, seed, train, held_out)


def reverse(*, seed: int = 0, train: int = 20000, held_out: int = 1000) -> Task:
    """Build the task `reverse`: abc= is answered with cba."""
    return _string_task("reverse", REVERSE_SUMMARY, lambda text: text[::-1], seed, train, held_out)


def _string_task(name: str, summary: str, answer: Callable[[str], str], seed: int, train: int, held_out: int) -> Task:
    tokenizer = CharTokenizer(ALPHABET + EQUALS, specials=("<eos>",))
    eos = tokenizer.specials["<eos>"]
    seen, unseen = _draw(seed, train, held_out)

    def examples(texts: list[str]):
        ids = encode_each(tokenizer, [text + EQUALS + answer(text) for text in texts])
        sequences = [np.append(row, eos) for row in ids]
        return decoder_examples(sequences, [len(text) + 1 for text in texts], pad=eos)

    return Task(
        name=name,
        summary=summary,
        architecture="decoder",
        tokenizer=tokenizer,
        train=examples(seen),
        held_out=examples(unseen),
        settings={
            "vocab": tokenizer.size, "context": 2 * LONGEST + 2, "width": 64, "heads": 4, "layers": 2,
            "positions": "learned", "activation": "gelu_tanh",
        },
        recipe=recipe(steps=2000, batch=64, lr=2e-3, warmup=100, weight_decay=0.01),
        metric="sequence",
        encode_input=lambda text: Batch(tokenizer.encode(_checked(text.strip()) + EQUALS)[None]),
        decode_answer=lambda ids: tokenizer.decode(until(ids, eos)),
        prompts=tuple(unseen[:3]),
    )  # fmt: skip


def _checked(text: str) -> str:
    if not 1 <= len(text) <= LONGEST:
        raise DataError(f"{text!r} has {len(text)} letters", hint=f"type 1 to {LONGEST} letters from {ALPHABET}")
    return text


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
            (unseen if hash_fraction(text) < HELD_OUT_SHARE else seen).append(text)
    return seen[:train], unseen[:held_out]
