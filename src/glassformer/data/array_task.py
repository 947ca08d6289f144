"""A task of arrays: token ids that somebody brings, with what is to be answered."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, DataError, ShapeError
from ..models.model import Batch
from ..ops.loss import IGNORE
from ..text.tokenizer import Tokenizer
from ..text.words import WordTokenizer
from .examples import Dataset, Examples, Windows, random_split
from .task import Architecture, Metric, Task, recipe

TRAIN_SHARE = 0.9
CONTEXT = 64
"""How many ids of a long text are read at a time unless the model or a setting says otherwise."""
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

    architecture   of the model; None: as the arrays suggest
    validation     the same kind of data, held out; None: a tenth of `data`, chosen at random, or the end of a text
    tokenizer      says what the ids mean, target_tokenizer what those of answers mean, where that differs; None: every
                   id is called by its number
    """
    size = CONTEXT if context is None else context
    train = _dataset(data, size)
    train, held_out = _split(train, seed) if validation is None else (train, _dataset(validation, size))
    first = train.batch(0, 1, 0)
    if first.targets is None:
        raise DataError("the data has no targets to learn", hint="pass (tokens, targets), or Batch(tokens, targets)")
    found = _architecture(first) if architecture is None else architecture
    settings = _settings(found, first, train, held_out)
    has_classes = settings.get("classes") is not None
    tokenizer, writer = _tokenizers(settings) if tokenizer is None else (tokenizer, target_tokenizer)
    return Task(
        name="arrays",
        architecture=found,
        tokenizer=tokenizer,
        target_tokenizer=writer,
        train=train,
        held_out=held_out,
        settings={**settings, **SIZES},
        recipe=recipe(),
        metric=_metric(found, has_classes, first),
        encode_input=lambda typed: _typed(tokenizer.encode(typed), first),
        decode_answer=_class_name if has_classes else (writer or tokenizer).decode,
        summary="token ids",
        notes=(f"{len(train):,} examples to train on, {len(held_out):,} held out",),
    )


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
        hint="pass the name of a task, a file of text, (tokens, targets), a Batch or a Dataset",
    )


def _ids(values: Any, what: str) -> Array:
    ids = np.asarray(values)
    if ids.dtype.kind not in "iu":
        raise DataError(f"{what} are of type {ids.dtype}", hint="pass whole numbers: token ids")
    return ids.astype(np.int64, copy=False)


def _split(data: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Hold out a tenth."""
    if isinstance(data, Windows):
        cut = int(len(data.tokens) * TRAIN_SHARE)
        if cut < 2 or len(data.tokens) - cut < 2:
            raise DataError(f"{len(data.tokens)} ids are too few to hold out a tenth", hint="pass more of them")
        return Windows(data.tokens[:cut], data.context), Windows(data.tokens[cut:], data.context)
    if isinstance(data, Examples):
        parts = random_split(len(data), (TRAIN_SHARE,), seed)
        return Examples(data.take(parts[0])), Examples(data.take(parts[1]))
    raise ConfigError("this Dataset cannot be split", hint="hold some data out yourself: validation=…")


def _architecture(first: Batch) -> Architecture:
    if first.source is not None:
        return "encoder-decoder"
    return "encoder" if np.asarray(first.targets).ndim == 1 else "decoder"


def _settings(architecture: Architecture, first: Batch, *parts: Dataset) -> dict[str, Any]:
    """Return what of a model follows from the data."""
    settings: dict[str, Any] = {"context": max(part.longest for part in parts)}
    largest = [_largest(part) for part in parts]
    known = {name: max(sizes[name] for sizes in largest) for name in largest[0] if all(name in s for s in largest)}
    has_classes = architecture == "encoder" and np.asarray(first.targets).ndim == 1
    if "tokens" in known:
        written = known["tokens"] if has_classes else max(known["tokens"], known["targets"])
        settings["vocab"] = written + 1
    if "source" in known:
        settings["source_vocab"] = known["source"] + 1
    if has_classes and "targets" in known:
        settings["classes"] = max(known["targets"] + 1, 2)
    elif architecture == "encoder":
        settings |= {"head": "tokens", "classes": None}
    return settings


def _tokenizers(settings: dict[str, Any]) -> tuple[Tokenizer, Tokenizer | None]:
    """Return tokenizers that call every id by its number: of what is read, and of what is written if that differs."""
    written = WordTokenizer(map(str, range(settings.get("vocab", 1))))
    if "source_vocab" not in settings:
        return written, None
    return WordTokenizer(map(str, range(settings["source_vocab"]))), written


def _largest(data: Dataset) -> dict[str, int]:
    """Return the largest id of each array; nothing where only batches could tell."""
    if isinstance(data, Windows):
        most = int(np.max(data.tokens))
        return {"tokens": most, "targets": most}
    if not isinstance(data, Examples):
        return {}
    arrays = {name: getattr(data.rows, name) for name in ("tokens", "targets", "source")}
    return {name: int(np.max(array)) for name, array in arrays.items() if array is not None}


def _metric(architecture: Architecture, has_classes: bool, first: Batch) -> Metric:
    if has_classes:
        return "classes"
    asks_for_an_answer = architecture != "decoder" or bool(np.any(np.asarray(first.targets) == IGNORE))
    return "sequence" if asks_for_an_answer else "none"


def _typed(ids: Array, first: Batch) -> Batch:
    if first.source is None:
        return Batch(ids[None])
    return Batch(np.asarray(first.tokens)[:1, :1], source=ids[None])


def _class_name(ids: Sequence[int] | Array) -> str:
    return str(int(np.asarray(ids).reshape(-1)[0]))
