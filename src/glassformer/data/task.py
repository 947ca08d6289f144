"""A task: data to learn from, data to be judged by, and a model and a training that suit it."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError
from ..core.registry import SUMMARIES
from ..core.reporting import report
from ..core.settings import Within, check_known
from ..models.model import Batch
from ..ops.loss import IGNORE
from ..text import CharTokenizer, PublishedTokenizer, Tokenizer
from .examples import Dataset, Examples, Windows, class_examples, decoder_examples, translation_examples
from .splits import Splits

Architecture = Literal["encoder", "decoder", "encoder-decoder"]
Metric = Literal["classes", "sequence", "none"]

RECIPE: dict[str, Any] = {
    "steps": 1000, "batch": 32, "optimizer": "adamw", "lr": 1e-3, "beta2": None, "schedule": "cosine", "warmup": 50,
    "weight_decay": 0.1, "clip": 1.0, "dropout": 0.0, "label_smoothing": 0.0, "eval_every": 250,
    "patience": None, "keep": "best",
}  # fmt: skip
"""Settings of a training where a task does not say otherwise."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Task:
    """Everything a training run needs to know about what is learned.

    summary           the task in one line; one of ours has it from `SUMMARIES`
    architecture      the model that reads it
    tokenizer         of what is read; target_tokenizer of what is answered, where that differs
    train, held_out   no example of the held-out data occurs in the training data
    validation        a third part to choose settings by, where there is one; None: the held-out data serves
    settings          fields of the model's config
    recipe            training defaults: every key of `RECIPE`
    metric            classes: is the likeliest class right? sequence: is the whole greedily written answer right?
                      none: the loss alone
    encode_input      one typed input as a batch of one; for a decoder the tokens to continue, for an encoder-decoder
                      the source and the first token of the answer
    decode_answer     the ids of an answer (what follows the input, up to its end; or one class) as text
    prompts           typed inputs to show answers to while training
    groups            a label for each held-out example, such as its language; empty where there are none
    texts             what each example reads, by part and in their order; None where it is no text, or not kept
    notes             what a reader of the results should know, such as how much of the data was left out

    The greedy answer to an example is right exactly when, reading the right answer, the model ranks every next token
    of it first. So one forward pass over `tokens` scores a sequence: every counted target must be the likeliest.
    """

    name: str
    architecture: Architecture
    tokenizer: Tokenizer
    train: Dataset
    held_out: Dataset
    settings: dict[str, Any]
    recipe: dict[str, Any]
    metric: Metric
    encode_input: Callable[[str], Batch]
    decode_answer: Callable[[Sequence[int] | Array], str]
    summary: str = ""
    target_tokenizer: Tokenizer | None = None
    validation: Dataset | None = None
    prompts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    texts: Splits | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", self.summary or SUMMARIES.get(self.name, ""))

    def __repr__(self) -> str:
        return "\n".join([f"Task({self.name!r}, {self.architecture})", *self.notes])

    @property
    def is_picklable(self) -> bool:
        """Whether it holds arrays, and no functions that pickle could not find again."""
        functions = (self.encode_input, self.decode_answer)
        is_of_arrays = all(isinstance(data, Examples | Windows) for data in (self.train, self.held_out))
        return is_of_arrays and not any("<locals>" in getattr(each, "__qualname__", "") for each in functions)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self.is_picklable:
            fact = f"the task {self.name!r} holds functions, which pickle cannot keep"
            raise ConfigError(fact, hint=f"build it again where you need it: gf.data.build_task({self.name!r}, …)")
        return super().__reduce_ex__(protocol)

    def __copy__(self) -> "Task":
        return self  # nothing in it changes

    def __deepcopy__(self, memo: Any) -> "Task":
        return self

    @property
    def answer_tokenizer(self) -> Tokenizer:
        """The tokenizer of the answers."""
        return self.tokenizer if self.target_tokenizer is None else self.target_tokenizer

    def class_labels(self, config: Any) -> tuple[str, ...]:
        """Return the names of the classes of a model; none for one without classes."""
        return tuple(self.decode_answer([number]) for number in range(getattr(config, "classes", None) or 0))


def recipe(**changes: Any) -> dict[str, Any]:
    """Return the default recipe with some values changed."""
    for name in changes:
        check_known("a recipe has no", name, RECIPE)
    return {**RECIPE, **changes}


def until(ids: Sequence[int] | Array, end: int) -> list[int]:
    """Return the ids before the first `end`."""
    ids = [int(i) for i in ids]
    return ids[: ids.index(end)] if end in ids else ids


def is_task(stored: Any) -> bool:
    """Return whether what a file says of a task is its name, its options and where its data is."""
    if not isinstance(stored, dict) or not isinstance(stored.get("name"), str):
        return False
    options = stored.get("options")
    return isinstance(options, dict) and isinstance(options.get("data"), str | None)


# --- notes: lines about a file, to be read before the first step ------------------------------------------------------


EXAMPLE_WIDTH = 60
"""Characters of a text that an example shows."""
MAX_LABELS = 12
"""Labels that are counted by name."""
_PLURAL = re.compile(r"^(\w+ )?(row|text|pair|line|source|file)s\b")


def left_out(reasons: Mapping[str, int]) -> tuple[str, ...]:
    """Return how many were left out for each reason, in one line; none if nothing was."""
    singular = {reason: _PLURAL.sub(r"\1\2", reason) for reason in reasons}  # 1 row, 2 rows
    parts = [f"{count:,} {singular[reason] if count == 1 else reason}" for reason, count in reasons.items() if count]
    return (f"left out: {'; '.join(parts)}",) if parts else ()


def label_counts(labels: Counter[str]) -> str:
    """Return how many texts each label has, the most frequent first."""
    ordered = labels.most_common()
    shown = ", ".join(f"{short(label, 30)} ({count:,})" for label, count in ordered[:MAX_LABELS])
    return f"labels: {shown}" + (f" and {len(ordered) - MAX_LABELS:,} others" if len(ordered) > MAX_LABELS else "")


def length_line(what: str, lengths: Sequence[int], note: str = "") -> str:
    """Return the median and the most tokens of texts."""
    return f"{what}: median {int(np.median(lengths)):,} tokens, longest {max(lengths):,}{note}"


def tokens_line(tokenizer: Tokenizer, *, learned: bool = True) -> str:
    """Return the line about what texts are cut into; `learned`: it was made for this data."""
    return f"tokenizer: {tokenizer.kind}, {tokenizer.size:,} tokens" + ("" if learned else ", of the model")


def split_line(parts: Sequence[Sequence[object]]) -> str:
    """Return how many examples each of the parts has: to train on, to validate, to test."""
    train, validation, held_out = map(len, parts)
    between = f"{validation:,} to choose the best parameters by, " if validation else ""
    return f"split: {train:,} to train on, {between}{held_out:,} held out"


def example_lines(pairs: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return a line for each example: a text, or a text and what belongs to it."""
    return tuple("  " + " → ".join(f"“{short(part)}”" for part in pair) for pair in pairs)


def short(text: str, width: int = EXAMPLE_WIDTH) -> str:
    """Return a text on one line, and no more of it than fits."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


# --- tasks of questions with answers ---------------------------------------------------------------------------------

Seed = Annotated[int, Within(0)]
Count = Annotated[int, Within(1)]


TOGETHER = 4096
"""Texts that are encoded at a time."""
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
            return encode_each(self.tokenizer, texts, specials=True)
        return encode_each(self.tokenizer, texts)

    def encode_question(self, architecture: Architecture, question: str) -> Batch:
        """Return a question as a batch of one."""
        if architecture == "encoder-decoder":
            return Batch(np.array([self.borders[:1]]), source=self.encode_sources([question])[0][None])
        if architecture == "encoder":
            return Batch(self.encode_sources([question])[0][None])
        start = [] if self.start_id is None else [self.start_id]
        return Batch(np.array([*start, *self.tokenizer.encode(question)], dtype=np.int64)[None])


def encode_each(tokenizer: Tokenizer, texts: Sequence[str], *, specials: bool = False) -> list[Array]:
    """Encode many short texts at once, and report how many are done; the published tokenizers' own `specials` too."""
    if isinstance(tokenizer, CharTokenizer):  # one character is one id: cut again where the texts end
        ends = np.cumsum([len(text) for text in texts])
        return np.split(tokenizer.encode("".join(texts)), ends[:-1])
    if not isinstance(tokenizer, PublishedTokenizer):
        return [tokenizer.encode(text) for text in texts]
    ids: list[Array] = []
    for start in range(0, len(texts), TOGETHER):
        if start:
            report(start, len(texts), "texts encoded")
        ids += tokenizer.encode_all(texts[start : start + TOGETHER], specials=specials)
    return ids


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
