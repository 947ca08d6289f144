"""Training data as batches that are a pure function of the step, so that resuming needs the step number only.

Sequences of different lengths are stacked as padded examples, for each architecture.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from ..core.arrays import Array, namespace
from ..core.errors import ConfigError, DataError, ShapeError
from ..models.model import Batch
from ..ops.loss import IGNORE


class Dataset(Protocol):
    """Where batches come from: random ones to train on, all of them in order to evaluate on."""

    def __len__(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def longest(self) -> int: ...

    def batch(self, step: int, size: int, seed: int, *, rows: Array | None = None) -> Batch: ...

    def batches(self, size: int) -> Iterator[Batch]: ...


class Examples:
    """N separate examples, stacked: every array of `rows` has N as its first axis.

    Training runs through all examples in an order drawn anew for each epoch from (seed, epoch). Batches cut that
    endless stream into pieces, so a batch may span the end of an epoch and the start of the next.
    """

    def __init__(self, rows: Batch) -> None:
        lengths = {name: len(array) for name, array in rows._asdict().items() if array is not None}
        if len(set(lengths.values())) != 1:
            raise ShapeError(f"the arrays differ in their number of examples: {lengths}", hint="stack one row for each")
        if not lengths["tokens"]:
            raise DataError("there are no examples", hint="pass at least one")
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows.tokens)

    @property
    def count(self) -> int:
        """The number of targets: what a loss over all examples averages."""
        return count_targets(self.rows)

    @property
    def longest(self) -> int:
        """The length of the longest example in tokens, of its source or of what is read and written."""
        return max(np.shape(ids)[1] for ids in (self.rows.tokens, self.rows.source) if ids is not None)

    def order(self, step: int, size: int, seed: int) -> Array:
        """Return which examples make up the batch of this step: (size,) indices."""
        _check_step(step, size, seed)
        numbers = np.arange(step * size, (step + 1) * size)
        epochs, within = np.divmod(numbers, len(self))
        order = np.empty(size, dtype=np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            order[chosen] = _permutation(seed, int(epoch), len(self))[within[chosen]]
        return order

    def take(self, indices: Array) -> Batch:
        """Return these examples with all their padding, so that every batch of a size has the same shape."""
        return Batch(*(None if array is None else array[indices] for array in self.rows))

    def answered(self) -> "Examples":
        """Return the examples whose class is known."""
        known = np.asarray(self.rows.targets) != IGNORE
        return self if known.all() else Examples(self.take(np.flatnonzero(known)))

    def batch(self, step: int, size: int, seed: int, *, rows: Array | None = None) -> Batch:
        """Return the examples to train on in this step, trimmed; or some `rows` of them, with all their padding."""
        order = self.order(step, size, seed)
        return trim(self.take(order)) if rows is None else self.take(order[rows])

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield every example once, in order, trimmed; the last batch may be smaller."""
        _check_step(0, size, 0)
        for start in range(0, len(self), size):
            yield trim(self.take(slice(start, start + size)))


class Windows:
    """A long text as windows of `context` tokens, each predicting the token after.

    `tokens` is one-dimensional and may be a memory map: only the windows of a batch are ever read. It may also be a
    function that returns them, which is called when they are asked for.
    """

    def __init__(self, tokens: Array | Callable[[], Array], context: int) -> None:
        if context < 1:
            raise ConfigError(f"context is {context}", hint="use a context of at least 1")
        self.context = context
        if callable(tokens):
            self._tokens = tokens
        else:
            self.tokens = _checked_text(tokens)

    @functools.cached_property
    def tokens(self) -> Array:
        """The ids, (T,)."""
        return _checked_text(self._tokens())

    def __len__(self) -> int:
        """Return the number of windows that a pass over the whole text reads."""
        return -(-self.count // self.context)

    @property
    def count(self) -> int:
        """The number of targets: every token but the first."""
        return len(self.tokens) - 1

    @property
    def longest(self) -> int:
        """The length of the longest window, in tokens."""
        return self.context

    def batch(self, step: int, size: int, seed: int, *, rows: Array | None = None) -> Batch:
        """Return windows that begin at random, drawn from (seed, step), or some `rows` of them.

        A text shorter than a window is read whole.
        """
        _check_step(step, size, seed)
        width = min(self.context, self.count)
        rng = np.random.default_rng((seed, step))
        starts = rng.integers(0, len(self.tokens) - width, size=size)
        starts = starts if rows is None else starts[rows]
        spans = np.stack([self.tokens[start : start + width + 1] for start in starts.tolist()]).astype(np.int64)
        return Batch(np.ascontiguousarray(spans[:, :-1]), np.ascontiguousarray(spans[:, 1:]))

    def sample(self, count: int) -> Examples:
        """Return full windows drawn at random, no two alike; always the same ones, so that losses can be compared."""
        most = self.count // self.context
        starts = np.random.default_rng(0).choice(most, size=min(count, most), replace=False) * self.context
        spans = np.stack([self.tokens[start : start + self.context + 1] for start in starts.tolist()]).astype(np.int64)
        return Examples(Batch(spans[:, :-1].copy(), spans[:, 1:].copy()))

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all windows side by side: every token but the first is the target exactly once.

        The last window may be shorter; it is padded, and its padding is masked and ignored.
        """
        _check_step(0, size, 0)
        T = self.context
        for first in range(0, len(self), size):
            rows = min(size, len(self) - first)
            span = np.asarray(self.tokens[first * T : (first + rows) * T + 1]).astype(np.int64)
            missing = rows * T + 1 - len(span)
            tokens = np.concatenate([span[:-1], np.zeros(missing, dtype=np.int64)]).reshape(rows, T)
            targets = np.concatenate([span[1:], np.full(missing, IGNORE)]).reshape(rows, T)
            mask = (np.arange(rows * T) < len(span) - 1).reshape(rows, T)
            yield trim(Batch(tokens, targets, mask))


def _checked_text(tokens: Array) -> Array:
    namespace(tokens)
    if tokens.ndim != 1:
        raise ShapeError(f"the text has shape {tuple(tokens.shape)}, expected (tokens,)", hint="join its parts")
    if len(tokens) < 2:
        raise DataError(
            f"the text has {len(tokens)} tokens, and learning what follows takes 2", hint="use a longer text"
        )
    return tokens


def trim(batch: Batch) -> Batch:
    """Cut the columns that are padding in every row, and leave out a mask that no longer hides anything."""
    tokens, mask, (targets, segments) = _trim(batch.tokens, batch.mask, (batch.targets, batch.segments))
    source, source_mask, _ = _trim(batch.source, batch.source_mask, ())
    return Batch(tokens, targets, mask, source, source_mask, segments)


def count_targets(batch: Batch) -> int:
    """Count the targets that are not ignored: the weight of this batch's loss in an average over several."""
    return 0 if batch.targets is None else int(np.sum(np.asarray(batch.targets) != IGNORE))


def stack(
    sequences: Sequence[Array], *, pad: int = 0, left: bool = False, rows: int = 0, size: int = 0
) -> tuple[Array, Array]:
    """Return the sequences as rows of one array, padded at the end, and the mask of what is real.

    left         pad before them
    rows, size   add empty rows up to this many, and padding up to this length
    """
    lengths = np.zeros((max(rows, len(sequences)), 1), dtype=np.int64)
    lengths[: len(sequences), 0] = [len(sequence) for sequence in sequences]
    columns = np.arange(max(size, lengths.max(initial=0)))
    mask = columns >= len(columns) - lengths if left else columns < lengths
    ids = np.full(mask.shape, pad, dtype=np.int64)
    if len(sequences):
        ids[mask] = np.concatenate(sequences)
    return ids, mask


def decoder_examples(sequences: Sequence[Array], prompts: Sequence[int], *, pad: int = 0) -> Examples:
    """Stack texts for a decoder: each token is to be followed by the next, and only what follows the prompt counts.

    `prompts` are the lengths of the parts that are given, at least one token each.
    """
    spans, real = stack(sequences, pad=pad)
    tokens, targets, mask = spans[:, :-1].copy(), spans[:, 1:].copy(), real[:, 1:].copy()
    prompt = np.arange(1, spans.shape[1]) < np.asarray(prompts)[:, None]
    targets[prompt | ~mask] = IGNORE
    return Examples(Batch(tokens, targets, mask))


def class_examples(sequences: Sequence[Array], labels: Sequence[str], classes: Sequence[str]) -> Examples:
    """Stack texts for an encoder, each with the number of its class."""
    tokens, mask = stack(sequences)
    number = {name: index for index, name in enumerate(classes)}
    return Examples(Batch(tokens, np.array([number[label] for label in labels]), None if mask.all() else mask))


def translation_examples(sources: Sequence[Array], answers: Sequence[Array], *, bos: int, eos: int) -> Examples:
    """Stack pairs for an encoder-decoder: it reads the source, starts from <bos> and ends with <eos>."""
    source, source_mask = stack(sources)
    tokens, mask = stack([np.concatenate([[bos], answer]) for answer in answers])
    targets, _ = stack([np.concatenate([answer, [eos]]) for answer in answers], pad=IGNORE)
    return Examples(Batch(tokens, targets, mask, source, source_mask))


def _trim(ids: Array, mask: Array, others: tuple[Array, ...]) -> tuple[Array, Array, tuple[Array, ...]]:
    if mask is None:
        return ids, None, others
    used = np.flatnonzero(mask.any(axis=0))
    length = int(used[-1]) + 1 if len(used) else 1
    mask = mask[:, :length]
    others = tuple(x[:, :length] if x is not None and x.ndim == 2 else x for x in others)
    return ids[:, :length], None if mask.all() else mask, others


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> Array:
    order = np.random.default_rng((seed, epoch)).permutation(size)
    order.flags.writeable = False
    return order


def _check_step(step: int, size: int, seed: int) -> None:
    if size < 1:
        raise ConfigError(f"the batch size is {size}", hint="use a batch of at least 1")
    if step < 0 or seed < 0:
        raise ConfigError(f"step {step}, seed {seed}: neither may be negative", hint="count from 0")
