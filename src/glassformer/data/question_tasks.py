"""Tasks made of questions and answers, for each architecture: text that follows, a class, or another text."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from ..models.model import Batch
from ..text.tokenizer import Tokenizer
from .examples import Examples, decoder_examples, stack, translation_examples
from .lexicon import encode_each
from .splits import Splits
from .task import Task, until

SETTINGS = {"positions": "learned", "activation": "gelu_tanh"}
"""What the models of these tasks have in common."""


def decoder_task(
    name: str,
    tokenizer: Tokenizer,
    splits: Splits,
    question: Callable[[str], str],
    answer: Callable[[str], str],
    *,
    settings: dict[str, Any],
    end: Sequence[int] = (),
    **others: Any,
) -> Task:
    """Build the task of a decoder: it reads a question and writes the answer behind it.

    splits      the questions; a part that is empty is left out
    question   what was typed as a question
    answer     of a question; the tokens `end` follow it
    """

    def examples(questions: list[str]) -> Examples:
        asked = encode_each(tokenizer, questions)
        answers = encode_each(tokenizer, [answer(question) for question in questions])
        tail = np.array(end, dtype=np.int64)
        rows = [np.concatenate([*row, tail]) for row in zip(asked, answers, strict=True)]
        return decoder_examples(rows, [len(row) for row in asked], pad=end[0] if end else 0)

    return _task(
        name,
        tokenizer,
        splits,
        examples,
        settings,
        architecture="decoder",
        metric="sequence",
        encode_input=lambda typed: Batch(tokenizer.encode(question(typed))[None]),
        **others,
    )


def classifier_task(
    name: str,
    tokenizer: Tokenizer,
    splits: Splits,
    question: Callable[[str], str],
    answer: Callable[[str], str],
    classes: Sequence[str],
    *,
    settings: dict[str, Any],
    **others: Any,
) -> Task:
    """Build the task of an encoder: it reads a question and tells which of some classes it belongs to."""
    number = {word: i for i, word in enumerate(classes)}

    def examples(questions: list[str]) -> Examples:
        tokens, mask = stack(encode_each(tokenizer, questions))
        return Examples(Batch(tokens, np.array([number[answer(question)] for question in questions]), mask))

    return _task(
        name,
        tokenizer,
        splits,
        examples,
        {"classes": len(classes), **settings},
        architecture="encoder",
        metric="classes",
        encode_input=lambda typed: Batch(tokenizer.encode(question(typed))[None]),
        decode_answer=lambda ids: classes[int(ids[0])],
        **others,
    )


def encoder_decoder_task(
    name: str,
    tokenizer: Tokenizer,
    splits: Splits,
    question: Callable[[str], str],
    answer: Callable[[str], str],
    *,
    borders: tuple[int, int],
    settings: dict[str, Any],
    **others: Any,
) -> Task:
    """Build the task of an encoder-decoder: it reads a question, and writes the answer between two `borders`."""
    bos, eos = borders

    def examples(questions: list[str]) -> Examples:
        answers = encode_each(tokenizer, [answer(question) for question in questions])
        return translation_examples(encode_each(tokenizer, questions), answers, bos=bos, eos=eos)

    return _task(
        name,
        tokenizer,
        splits,
        examples,
        {"source_vocab": tokenizer.size, **settings},
        architecture="encoder-decoder",
        metric="sequence",
        encode_input=lambda typed: Batch(np.array([[bos]]), source=tokenizer.encode(question(typed))[None]),
        decode_answer=lambda ids: tokenizer.decode(until(ids, eos)),
        **others,
    )


def require_text(typed: str) -> str:
    """Return what was typed; refuse nothing at all."""
    if not typed:
        raise DataError("there is no question", hint="type at least one character")
    return typed


def _task(
    name: str,
    tokenizer: Tokenizer,
    splits: Splits,
    examples: Callable[[list[str]], Examples],
    settings: dict[str, Any],
    **others: Any,
) -> Task:
    """Build a task from the examples of each part; the longest one says how long a context is needed."""
    made = {part: examples(questions) for part, questions in splits._asdict().items() if questions}
    longest = max(part.longest for part in made.values())
    return Task(
        name=name,
        tokenizer=tokenizer,
        train=made["train"],
        validation=made.get("validation"),
        held_out=made["held_out"],
        settings={"vocab": tokenizer.size, "context": longest, **SETTINGS, **settings},
        **others,
    )
