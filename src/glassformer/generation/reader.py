"""How generation reads: several sequences at once, each one token further at a time.

A reader has read the prompts when it is made. `logits` (R, V) are about the token that follows each sequence; `read`
takes one more token of each, `select` keeps some of the sequences, in a new order, perhaps several times.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from .. import dispatch
from ..arrays import Array, Tree, check_ids, check_length
from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from ..errors import ConfigError, LengthError, ShapeError
from ..models import Batch, Decoder, EncoderDecoder, Model
from ..settings import check_count
from ..sources import check_once
from .sampling import Sampling

CHUNK = 512
Rows = list[Array]
"""The ids of several sequences."""


class Reader(Protocol):
    """What generation needs of a model: logits, one more token, some of the sequences.

    Some readers can also write several tokens before anyone looks at them, as that of the engine jax does:
    `write(count, writing)` returns them, (N, R), −1 after a stop id or the limit; or NotImplemented.
    """

    @property
    def logits(self) -> Array: ...

    def read(self, ids: Array) -> None: ...

    def select(self, rows: Array) -> None: ...


class Writing(NamedTuple):
    """How a reader that can write is to do so.

    limits     (R,) how many tokens each sequence may still write
    sampling   how they are chosen
    rngs       each sequence's own; one number is taken for each token
    stop_ids   tokens after which a sequence has ended
    known      ids below this may be written (None: all)
    """

    limits: Array
    sampling: Sampling
    rngs: Sequence[np.random.Generator] = ()
    stop_ids: frozenset[int] = frozenset()
    known: int | None = None


def reader_of(
    model: Model, params: Tree, prompts: Rows, sources: Rows | None, *, cache: bool, chunk: int, room: int
) -> Callable[[], Reader]:
    """Return what starts a reader: the engine's own, or one without a cache; up to `room` tokens may follow."""
    if not cache:
        return partial(PlainReader, model, params, prompts, sources)
    return partial(dispatch.current().reader, model, params, prompts, sources, chunk=chunk, room=room)


class CachedReader:
    """Reads every token once and remembers its keys and values.

    Prompts of different lengths are padded on the left, so that the next token of all has the same place in the cache;
    where a token stands in its own sequence is told by `positions`. The cache grows as it must: `room`, for how many
    tokens may follow the prompts, is not needed.
    """

    logits: Array

    def __init__(
        self,
        model: Model,
        params: Tree,
        prompts: Rows,
        sources: Rows | None,
        chunk: int = CHUNK,
        room: int | None = None,
    ) -> None:
        assert isinstance(model, Decoder | EncoderDecoder)
        self.model, self.params = model, params
        self.lengths = np.array([len(prompt) for prompt in prompts])
        self.cache = _cache_of(model, params, sources)
        tokens, mask = padded(prompts, left=True)
        positions = np.maximum(np.arange(tokens.shape[1]) - (tokens.shape[1] - self.lengths[:, None]), 0)
        for start in range(0, tokens.shape[1], chunk):
            part = slice(start, start + chunk)
            self._read(tokens[:, part], None if mask is None else mask[:, part], positions[:, part])

    def read(self, ids: Array) -> None:
        """Take one more token of each sequence, (R,)."""
        self._read(ids[:, None], None, self.lengths[:, None])
        self.lengths = self.lengths + 1

    def select(self, rows: Array) -> None:
        """Keep these sequences, in this order."""
        if np.array_equal(rows, np.arange(len(self.lengths))):
            return
        self.cache.select(rows)
        self.lengths, self.logits = self.lengths[rows], self.logits[rows]

    @check_once
    def _read(self, tokens: Array, mask: Array | None, positions: Array) -> None:
        logits = self.model.read(self.params, tokens, self.cache, mask=mask, positions=positions, last=True)
        self.logits = np.asarray(logits)[:, -1]


class PlainReader:
    """Reads every sequence alone and from its beginning at every step: slow, the reference for `CachedReader`."""

    logits: Array

    def __init__(self, model: Model, params: Tree, prompts: Rows, sources: Rows | None) -> None:
        self.model, self.params = model, params
        self.sequences = list(prompts)
        self.sources = sources
        self._read()

    def read(self, ids: Array) -> None:
        """Take one more token of each sequence, (R,)."""
        self.sequences = [np.append(tokens, token) for tokens, token in zip(self.sequences, ids, strict=True)]
        self._read()

    def select(self, rows: Array) -> None:
        """Keep these sequences, in this order."""
        self.sequences = [self.sequences[row] for row in rows]
        self.sources = None if self.sources is None else [self.sources[row] for row in rows]
        self.logits = self.logits[rows]

    def _read(self) -> None:
        rows = []
        for number, tokens in enumerate(self.sequences):
            source = None if self.sources is None else self.sources[number][None]
            logits, _ = self.model.predict(self.params, Batch(tokens[None], source=source))
            rows.append(np.asarray(logits)[0, -1])
        self.logits = np.stack(rows)


def checked(
    model: Model, prompts: Sequence[Sequence[int] | Array], sources: Sequence[Sequence[int] | Array] | None
) -> tuple[Rows, Rows | None]:
    """Return prompts and sources as arrays of ids; refuse what the model cannot read."""
    config = model.config
    if isinstance(config, EncoderConfig):
        raise ConfigError("an encoder does not write text", hint="use a decoder or an encoder-decoder")
    if isinstance(config, DecoderConfig) and sources is not None:
        raise ConfigError("a decoder has no source", hint="put all that it should read into the prompt")
    if isinstance(config, EncoderDecoderConfig) and sources is None:
        raise ConfigError("an encoder-decoder needs a source", hint="pass the ids that its encoder reads")
    if not prompts:
        raise LengthError("there are no prompts", hint="pass at least one")
    if sources is not None and len(sources) != len(prompts):
        raise ShapeError(f"there are {len(prompts)} prompts but {len(sources)} sources", hint="pass one source each")
    read = [_checked_ids(ids, config.vocab, config.context, "the prompt") for ids in prompts]
    if sources is None:
        return read, None
    return read, [_checked_ids(ids, config.source_size, config.context, "the source") for ids in sources]


def room(model: Model, prompt: Array, max_new_tokens: int, *, endless: bool = False) -> int:
    """Return how many tokens may follow a prompt: the last one fills the place after the context and is never read.

    endless   the context sets no limit
    """
    check_count("max_new_tokens", max_new_tokens, least=1)
    return max_new_tokens if endless else min(max_new_tokens, model.config.context + 1 - len(prompt))


def padded(rows: Rows, *, left: bool = False) -> tuple[Array, Array | None]:
    """Stack rows of ids, padded with zeros on the right or the left, (R, T); the mask (None: all) marks real tokens."""
    tokens, mask = filled(rows, len(rows), max(len(row) for row in rows), left=left)
    return tokens, None if mask.all() else mask


def filled(sequences: Rows, rows: int, size: int, *, left: bool = False) -> tuple[Array, Array]:
    """Return ids as (rows, size), padded with zeros on the right or the left and with empty rows; and their mask."""
    lengths = np.zeros((rows, 1), np.int64)
    lengths[: len(sequences), 0] = [len(ids) for ids in sequences]
    places = np.arange(size)
    mask = places >= size - lengths if left else places < lengths
    tokens: Array = np.zeros(mask.shape, dtype=np.int64)
    tokens[mask] = np.concatenate(sequences)
    return tokens, mask


def _cache_of(model: Decoder | EncoderDecoder, params: Tree, sources: Rows | None):
    if isinstance(model, Decoder):
        return model.new_cache()
    assert sources is not None
    source, mask = padded(sources)
    return model.new_cache(params, source, source_mask=mask)


def _checked_ids(ids: Sequence[int] | Array, vocab: int, context: int, what: str) -> Array:
    ids = np.asarray(ids, dtype=None if len(ids) else np.int64)
    if ids.ndim != 1:
        raise ShapeError(f"{what} has shape {ids.shape}", hint="pass one sequence of ids for each prompt")
    check_length(len(ids), context, what=what)
    check_ids(ids, vocab, what=f"the ids of {what}")
    return ids.astype(np.int64)
