"""Readers for generation: several sequences at once, each one token further at a time.

Past the context the window moves, and the tokens that stay in it are read again.

    context 8       a b c d e f g h        full: the next token, i, has no position
    moved           f g h i                half a context stays; these tokens now stand at positions 0, 1, 2, 3
    read on         f g h i j k l m        until it is full again

What the model says is exactly what it says of the tokens in the window alone, as if it had never read others. nanoGPT
moves by one token at a time and reads the whole window again for each; moving by half a window reads each token about
twice in all.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core import dispatch
from ..core.arrays import Array, Tree
from ..core.sources import check_once
from ..data.examples import stack
from ..models import Batch, Decoder, EncoderDecoder, Model
from .request import CHUNK, Request, Rows

Rngs: TypeAlias = Sequence[np.random.Generator]


class Reader:
    """Gives the logits after several sequences as they grow. A reader has read the prompts when it is made.

    logits   (R, V) about the token that follows each sequence
    """

    logits: Array

    def read(self, ids: Array) -> None:
        """Take one more token of each sequence, (R,)."""
        raise NotImplementedError

    def select(self, rows: Array) -> None:
        """Keep these sequences, in this order, perhaps several times."""
        raise NotImplementedError

    def write(self, count: int | None, limits: Array, rngs: Rngs, request: Request) -> Any:
        """Write up to `count` tokens before anyone looks at them, (N, R), −1 after a stop id or the limit.

        NotImplemented by readers that only read; the one of the engine jax writes on the device.

        limits   (R,) how many tokens each sequence may still write
        rngs     each sequence's own; one number is taken for each token
        """
        return NotImplemented


class CachedReader(Reader):
    """Reads every token once and remembers its keys and values.

    Prompts of different lengths are padded on the left, so that the next token of all has the same slot in the cache;
    `positions` counts tokens in their own sequences. The cache grows as it must: `room`, for how many tokens may follow
    the prompts, is not needed.
    """

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
        if isinstance(model, Decoder):
            self.cache = model.new_cache()
        else:
            assert sources is not None
            source, mask = stack(sources)
            self.cache = model.new_cache(params, source, source_mask=None if mask.all() else mask)
        tokens, mask = stack(prompts, left=True)
        masks = None if mask.all() else mask
        positions = np.maximum(np.arange(tokens.shape[1]) - (tokens.shape[1] - self.lengths[:, None]), 0)
        for start in range(0, tokens.shape[1], chunk):
            part = slice(start, start + chunk)
            self._read(tokens[:, part], None if masks is None else masks[:, part], positions[:, part])

    def read(self, ids: Array) -> None:
        self._read(ids[:, None], None, self.lengths[:, None])
        self.lengths = self.lengths + 1

    def select(self, rows: Array) -> None:
        if np.array_equal(rows, np.arange(len(self.lengths))):
            return
        self.cache.select(rows)
        self.lengths, self.logits = self.lengths[rows], self.logits[rows]

    @check_once
    def _read(self, tokens: Array, mask: Array | None, positions: Array) -> None:
        logits = self.model.read(self.params, tokens, self.cache, mask=mask, positions=positions, last=True)
        self.logits = np.asarray(logits)[:, -1]


class PlainReader(Reader):
    """Reads every sequence alone and from its beginning at every step: slow, the reference for `CachedReader`."""

    def __init__(self, model: Model, params: Tree, prompts: Rows, sources: Rows | None) -> None:
        self.model, self.params = model, params
        self.sequences = list(prompts)
        self.sources = sources
        self._read()

    def read(self, ids: Array) -> None:
        self.sequences = [np.append(tokens, token) for tokens, token in zip(self.sequences, ids, strict=True)]
        self._read()

    def select(self, rows: Array) -> None:
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


def kept(context: int) -> int:
    """Return how many tokens stay in the window when it moves, the new one among them."""
    return max(context // 2, 1)


class SlidingReader(Reader):
    """Reads past the context by restarting a reader whenever the window of a sequence moves.

    The window of a sequence depends on that sequence alone, so it is the same in any batch.
    """

    def __init__(self, start: Callable[[Rows], Reader], prompts: Rows, context: int) -> None:
        self.reader, self.start, self.context = start(prompts), start, context
        self.windows = list(prompts)

    @property
    def logits(self) -> Array:
        """Those of the window."""
        return self.reader.logits

    def read(self, ids: Array) -> None:
        self.windows = [np.append(window, token) for window, token in zip(self.windows, ids, strict=True)]
        if not self._move():
            self.reader.read(ids)

    def select(self, rows: Array) -> None:
        self.windows = [self.windows[row] for row in rows]
        self.reader.select(rows)

    def _move(self) -> bool:
        """Move the windows that hold more than the context and read them again; return whether any moved."""
        if all(len(window) <= self.context for window in self.windows):
            return False
        self.windows = [w[-kept(self.context) :] if len(w) > self.context else w for w in self.windows]
        self.reader = self.start(self.windows)
        return True

    def write(self, count: int | None, limits: Array, rngs: Rngs, request: Request) -> Any:
        """Write up to `count` tokens of each sequence, but no further than the first window that is full."""
        self._move()
        # The last token that is written is not read yet, so it may stand behind a full window.
        room = self.context + 1 - max(len(window) for window in self.windows)
        ids = self.reader.write(room if count is None else min(count, room), limits, rngs, request)
        if ids is not NotImplemented:
            pairs = zip(self.windows, ids.T, strict=True)
            self.windows = [np.append(window, written[written >= 0]) for window, written in pairs]
        return ids


def start_reader(model: Any, params: Tree, request: Request) -> Reader:
    """Return a reader of a checked request's prompts: the engine's, or one that reads all of a text for every token."""
    sources: Any = request.sources
    context = model.config.context

    def read(prompts: Rows) -> Reader:
        if not request.cache or model.rereads:
            return PlainReader(model, params, prompts, sources)
        room = max(request.room(prompt, context) for prompt in prompts)
        reader: Reader = dispatch.current().executor.reader(
            model, params, prompts, sources, chunk=request.chunk, room=room
        )
        return reader

    prompts = list(request.prompts)
    return SlidingReader(read, prompts, context) if request.slide else read(prompts)
