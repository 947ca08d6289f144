"""Tasks made of questions with answers, for each architecture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError
from ..core.setting import Within
from ..models.model import Batch
from ..ops.loss import IGNORE
from ..text import CharTokenizer, PublishedTokenizer, Tokenizer
from .examples import Examples, class_examples, decoder_examples, translation_examples
from .splits import Splits
from .task import Architecture, Task, until

Seed = Annotated[int, Within(0)]
Count = Annotated[int, Within(1)]


SETTINGS = {"positions": "learned", "activation": "gelu_tanh"}
"""Settings that the models of these tasks have in common."""


@dataclass(frozen=True)
class Lexicon:
    """The tokenizers and special tokens with which a model reads and writes text.

    tokenizer          of what it reads; target_tokenizer of what it writes, where that differs
    start_id, end_id   the tokens before and after a text; None where the model has none
    labels             the names of the classes that it tells apart; none unless it is a classifier
    """

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None
    start_id: int | None = None
    end_id: int | None = None
    labels: tuple[str, ...] = ()

    @property
    def borders(self) -> tuple[int, int]:
        """The tokens before and after a text; one that only ends texts stands before them too."""
        if self.end_id is None:
            raise ConfigError(
                "this model has no token that ends a text, so it cannot learn where a line or an answer ends",
                hint="train it on the task 'text', which needs none",
            )
        return self.end_id if self.start_id is None else self.start_id, self.end_id

    @property
    def writer(self) -> Tokenizer:
        """The tokenizer of what the model writes."""
        return self.target_tokenizer or self.tokenizer

    def encode_sources(self, texts: Sequence[str]) -> list[Array]:
        """Encode what an encoder reads, with the special tokens around it that a published model was trained with."""
        if isinstance(self.tokenizer, PublishedTokenizer):
            return [self.tokenizer.encode(text, specials=True) for text in texts]
        return encode_each(self.tokenizer, texts)

    def encode_question(self, architecture: Architecture, question: str) -> Batch:
        """Return a question as a batch of one."""
        if architecture == "encoder-decoder":
            return Batch(np.array([self.borders[:1]]), source=self.encode_sources([question])[0][None])
        if architecture == "encoder":
            return Batch(self.encode_sources([question])[0][None])
        start = [] if self.start_id is None else [self.start_id]
        return Batch(np.array([*start, *self.tokenizer.encode(question)], dtype=np.int64)[None])


def encode_each(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Array]:
    """Encode many short texts; where one character is one id, all at once, cut again where the texts end."""
    if not isinstance(tokenizer, CharTokenizer):
        return [tokenizer.encode(text) for text in texts]
    ends = np.cumsum([len(text) for text in texts])
    return np.split(tokenizer.encode("".join(texts)), ends[:-1])


def question_task(
    name: str,
    architecture: Architecture,
    lexicon: Lexicon,
    splits: Splits,
    read: Callable[[str], str],
    *,
    settings: dict[str, Any],
    classes: Sequence[str] = (),
    **others: Any,
) -> Task:
    """Build a task from questions with answers.

    architecture   encoder: the answer is one of the `classes`. decoder: writes the answer behind the question, after
                   the token that starts a text and up to the one that ends it, where there are such.
                   encoder-decoder: writes the answer between the two
    splits         pairs of a question and its answer; an empty part is left out
    read           returns what was typed as a question
    settings       of the model; its context is the longest example unless they say otherwise
    """

    def decode_answer(ids: Sequence[int] | Array) -> str:
        if classes:
            return classes[int(ids[0])]
        return lexicon.writer.decode(ids[:length] if lexicon.end_id is None else until(ids, lexicon.end_id))

    asked = {part: pairs for part, pairs in splits._asdict().items() if pairs}
    parts: dict[str, Any] = {part: _examples(architecture, lexicon, classes, asked[part]) for part in asked}
    length = 1 if classes else (parts["train"].rows.targets != IGNORE).sum(axis=1).max()
    sizes = {"vocab": lexicon.writer.size, "context": max(part.longest for part in parts.values())}
    if classes:
        sizes["classes"] = len(classes)
    if architecture == "encoder-decoder":
        sizes["source_vocab"] = lexicon.tokenizer.size
    usual: dict[str, Any] = {
        "metric": "classes" if classes else "sequence",
        "decode_answer": decode_answer,
        "prompts": tuple(question for question, _ in splits.held_out[:3]),
        "notes": (splits.note,),
    }
    return Task(
        name=name,
        architecture=architecture,
        tokenizer=lexicon.tokenizer,
        target_tokenizer=lexicon.target_tokenizer,
        settings={**sizes, **SETTINGS, **settings},
        encode_input=lambda typed: lexicon.encode_question(architecture, read(typed)),
        **parts,
        **(usual | others),
    )


def _examples(
    architecture: Architecture, lexicon: Lexicon, classes: Sequence[str], pairs: list[tuple[str, str]]
) -> Examples:
    questions, answers = zip(*pairs, strict=True)
    if architecture == "encoder":
        return class_examples(lexicon.encode_sources(questions), answers, classes)
    written = encode_each(lexicon.writer, answers)
    if architecture == "encoder-decoder":
        bos, eos = lexicon.borders
        return translation_examples(lexicon.encode_sources(questions), written, bos=bos, eos=eos)
    start, end = (
        np.array([] if token is None else [token], dtype=np.int64) for token in (lexicon.start_id, lexicon.end_id)
    )
    asked = encode_each(lexicon.tokenizer, questions)
    rows = [np.concatenate([start, *pair, end]) for pair in zip(asked, written, strict=True)]
    return decoder_examples(rows, [len(start) + len(ids) for ids in asked], pad=lexicon.end_id or 0)


def reading(unit: str, lengths: range, wanted: str, *, end: str = "") -> Callable[[str], str]:
    """Return what reads a typed question without its white space, and refuses one of another length.

    end   the sign that ends a question, typed or not
    """

    def read(typed: str) -> str:
        text = "".join(typed.split()).removesuffix(end)
        if len(text) not in lengths:
            raise DataError(f"{text!r} has {len(text)} {unit}", hint=f"type {wanted}")
        return text + end

    return read


def require_text(typed: str) -> str:
    """Return what was typed; refuse nothing at all."""
    if not typed:
        raise DataError("there is no text", hint="type at least one character")
    return typed
