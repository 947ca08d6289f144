"""A task of arrays: token ids, and what is to be answered."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError, ShapeError
from ..models.model import Batch
from ..ops.loss import IGNORE
from ..text.symbols import WordTokenizer
from ..text.tokenizer import Tokenizer
from .examples import Dataset, Examples, Windows, count_targets
from .splits import random_split
from .task import Architecture, Task, recipe

TRAIN_SHARE = 0.9
CONTEXT = 64
"""The ids of a long text that are read at a time unless the model or a setting says otherwise."""
SIZES = {"width": 64, "heads": 4, "layers": 2}
"""Of a model where none is named."""


def array_task(
    data: Any,
    *,
    architecture: Architecture | None = None,
    validation: Any = None,
    tokenizer: Tokenizer | None = None,
    target_tokenizer: Tokenizer | None = None,
    context: int | None = None,
    seed: int = 0,
) -> Task:
    """Build a task from token ids.

        (tokens, classes)     (N, T) and (N,): an encoder tells classes apart
        (tokens, targets)     (N, T) and (N, T): the id that should follow each token; -100 where nothing is asked
        tokens                (N, T): each row is a text, (T,): one long text, to be continued by a decoder
        Batch, Dataset        anything else, such as sources for an encoder-decoder
        BatchStream           batches of an iterator

    architecture   of the model; None: as the arrays suggest
    validation     the same kind of data, held out; None: a tenth of `data`, chosen at random, or the end of a text
    tokenizer      says what the ids mean, target_tokenizer what those of answers mean, where that differs; None: every
                   id is called by its number
    """
    train, held_out = _parts(data, validation, CONTEXT if context is None else context, seed)
    first = train.first if isinstance(train, BatchStream) else train.batch(0, 1, 0)
    if first.targets is None:
        raise DataError("the data has no targets to learn", hint="pass (tokens, targets), or Batch(tokens, targets)")
    one_answer = np.ndim(first.targets) == 1
    kind = architecture or ("encoder-decoder" if first.source is not None else "encoder" if one_answer else "decoder")
    has_classes = kind == "encoder" and one_answer
    settings = _settings(kind, has_classes, [train, held_out])
    if tokenizer is None:
        tokenizer, target_tokenizer = _numbers(settings.get("vocab", 1), settings.get("source_vocab"))
    decode = (target_tokenizer or tokenizer).decode
    continues = kind == "decoder" and not np.any(np.asarray(first.targets) == IGNORE)

    return Task(
        name="arrays",
        architecture=kind,
        tokenizer=tokenizer,
        target_tokenizer=target_tokenizer,
        train=train,
        held_out=held_out,
        settings={**settings, **SIZES},
        recipe=recipe(),
        metric="classes" if has_classes else "none" if continues else "sequence",
        encode_input=partial(_encode_input, tokenizer, None if first.source is None else first.tokens[:1, :1]),
        decode_answer=_class_name if has_classes else decode,
        summary="token ids",
        notes=(f"{_size_of(train)} to train on, {_size_of(held_out)} held out",),
    )


def _encode_input(tokenizer: Tokenizer, begin: Array | None, typed: str) -> Batch:
    ids = tokenizer.encode(typed)[None]
    return Batch(ids) if begin is None else Batch(np.asarray(begin), source=ids)


def _class_name(ids: Any) -> str:
    return str(int(np.ravel(ids)[0]))


class BatchStream:
    """The batches of an iterator as a Dataset to train on: each is used in one step, and its size is that of the first.

    They are Batches or pairs (tokens, targets). What came once cannot be asked for again.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches, self._step = batches, -1
        self.first = self._last = self._next(0)

    def __len__(self) -> int:
        return len(self.first.tokens)

    @property
    def count(self) -> int:
        """The number of targets of the first batch."""
        return count_targets(self.first)

    @property
    def longest(self) -> int:
        """The length of the longest example of the first batch, in tokens."""
        return Examples(self.first).longest

    def batch(self, step: int, size: int, seed: int, *, rows: Array | None = None) -> Batch:
        """Return the batch of a step, or some `rows` of it."""
        if step not in (self._step, self._step + 1):
            hint = "begin a new loop with a new iterator"
            raise DataError(f"step {step + 1} needs a batch that the iterator does not give now", hint=hint)
        self._last = self._last if step == self._step else self._next(step)
        if len(self._last.tokens) != size:
            fact = f"the batch of step {step + 1} has {len(self._last.tokens)} examples instead of {size}"
            raise DataError(fact, hint="give all batches the same number of examples, and leave out batch=…")
        return self._last if rows is None else Examples(self._last).take(rows)

    def batches(self, size: int) -> Iterator[Batch]:
        """Refuse to go through all batches."""
        raise DataError("batches of an iterator come only once", hint="evaluate on other data")

    def _next(self, step: int) -> Batch:
        item = next(self._batches, None)
        if item is None:
            raise DataError(f"the batches ended after {step} steps", hint=f"pass steps={step}, or an endless iterator")
        data = _dataset(item, CONTEXT)
        if not isinstance(data, Examples):
            raise DataError(f"the iterator gave {item!r:.80}", hint="give a Batch, or a pair (tokens, targets)")
        self._step = step
        return data.rows


def _size_of(data: Dataset) -> str:
    return "a stream" if isinstance(data, BatchStream) else f"{len(data):,} examples"


def _dataset(data: Any, context: int) -> Dataset:
    """Return data in any of its forms as a data set."""
    if isinstance(data, Batch):
        return Examples(Batch(*(None if part is None else np.asarray(part) for part in data)))
    if isinstance(data, tuple | list) and len(data) == 2:
        tokens, targets = _ids(data[0], "the tokens"), _ids(data[1], "the targets")
        if tokens.ndim != 2 or targets.shape not in (tokens.shape, tokens.shape[:1]):
            raise ShapeError(
                f"the tokens have shape {tokens.shape} and the targets {targets.shape}",
                hint="expected (N, T) and (N, T), or (N, T) and (N,) for classes",
            )
        return Examples(Batch(tokens, targets))
    if isinstance(data, np.ndarray):
        ids = _ids(data, "the tokens")
        if ids.ndim == 1:
            return Windows(ids, context)
        if ids.ndim != 2 or ids.shape[1] < 2:
            raise ShapeError(
                f"the tokens have shape {ids.shape}", hint="expected (N, T) with a T of at least 2, or (T,)"
            )
        return Examples(Batch(ids[:, :-1].copy(), ids[:, 1:].copy()))
    missing = [name for name in ("batch", "batches", "count", "longest", "__len__") if not hasattr(data, name)]
    if not missing:
        return data
    if hasattr(data, "batch") or hasattr(data, "batches"):
        raise DataError(
            f"{type(data).__name__} is not a Dataset: it has no {' and no '.join(missing)}",
            hint="count is the number of targets, longest the most tokens of an example; see gf.data.Dataset",
        )
    raise DataError(
        f"data of the type {type(data).__name__} cannot be trained on",
        hint="pass the name of a task, a file, a DataFrame, a list of dicts, (tokens, targets), a Batch or a Dataset",
    )


def _ids(values: Any, what: str) -> Array:
    ids = np.asarray(values)
    if ids.dtype.kind not in "iu":
        raise DataError(f"{what} are of type {ids.dtype}", hint="pass whole numbers: token ids")
    return ids.astype(np.int64, copy=False)


def _parts(source: Any, validation: Any, context: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return the data to train on and the data held out: a tenth, unless there is some."""
    data = _dataset(source, context)
    if validation is not None:
        return data, _dataset(validation, context)
    if isinstance(data, Windows):
        cut = int(len(data.tokens) * TRAIN_SHARE)
        if cut < 2 or len(data.tokens) - cut < 2:
            raise DataError(f"{len(data.tokens)} ids are too few to hold out a tenth", hint="pass more of them")
        return Windows(data.tokens[:cut], data.context), Windows(data.tokens[cut:], data.context)
    if isinstance(data, Examples):
        parts = random_split(len(data), (TRAIN_SHARE,), seed)
        return Examples(data.take(parts[0])), Examples(data.take(parts[1]))
    raise ConfigError("this Dataset cannot be split", hint="hold some data out yourself: validation=…")


def _numbers(vocab: int, source_vocab: int | None) -> tuple[Tokenizer, Tokenizer | None]:
    """Return tokenizers that call every id by its number: of what is read, and of what is written if that differs."""
    written = WordTokenizer(map(str, range(vocab)))
    return (written, None) if source_vocab is None else (WordTokenizer(map(str, range(source_vocab))), written)


def _settings(architecture: Architecture, has_classes: bool, parts: list[Dataset]) -> dict[str, Any]:
    """Return what of a model follows from the data."""
    counts = {
        "vocab": _count_ids(parts, "tokens", *([] if has_classes else ["targets"])),
        "source_vocab": _count_ids(parts, "source"),
        "classes": max(_count_ids(parts, "targets"), 2) if has_classes else 0,
    }
    settings: dict[str, Any] = {name: count for name, count in counts.items() if count}
    if architecture == "encoder" and not has_classes:
        settings |= {"head": "tokens", "classes": None}
    return {"context": max(part.longest for part in parts), **settings}


def _count_ids(parts: list[Dataset], *names: str) -> int:
    """Return how many ids some arrays have; 0 where there are no such arrays, or only batches could tell."""
    arrays = []
    for part in parts:
        if isinstance(part, Windows):
            arrays += [part.tokens] * ("source" not in names)
        elif isinstance(part, Examples):
            arrays += [array for name in names if (array := getattr(part.rows, name)) is not None]
        else:
            return 0
    return max((int(np.max(array)) + 1 for array in arrays), default=0)
