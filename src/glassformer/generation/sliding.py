"""Writing past the context: when it is full, the window moves, and the tokens that stay in it are read again.

    context 8       a b c d e f g h        full: the next token, i, has no place
    moved           f g h i                half a context stays; these tokens now stand at positions 0, 1, 2, 3
    read on         f g h i j k l m        until it is full again

What the model says is exactly what it says of the tokens in the window alone, as if it had never read others. nanoGPT
moves by one token at a time and reads the whole window again for each; moving by half a window reads each token about
twice in all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..config import DecoderConfig
from ..models import Model
from .reader import Reader, Rows, Writing, reader_of, room


def kept(context: int) -> int:
    """Return how many tokens stay in the window when it moves, the new one among them."""
    return max(context // 2, 1)


class SlidingReader:
    """Reads past the context by restarting a reader whenever the window of a sequence moves.

    The window of a sequence depends on that sequence alone, so it is the same in any batch.
    """

    def __init__(self, reader: Reader, start: Callable[[Rows], Reader], prompts: Rows, context: int) -> None:
        self.reader, self.start, self.context = reader, start, context
        self.windows = list(prompts)

    @property
    def logits(self) -> Array:
        """The logits (R, V) about the token that follows each sequence."""
        return self.reader.logits

    def read(self, ids: Array) -> None:
        """Take one more token of each sequence, (R,)."""
        self.windows = [np.append(window, token) for window, token in zip(self.windows, ids, strict=True)]
        if not self._move():
            self.reader.read(ids)

    def select(self, rows: Array) -> None:
        """Keep these sequences, in this order."""
        self.windows = [self.windows[row] for row in rows]
        self.reader.select(rows)

    def _move(self) -> bool:
        """Move the windows that hold more than the context and read them again; return whether any moved."""
        if all(len(window) <= self.context for window in self.windows):
            return False
        self.windows = [w[-kept(self.context) :] if len(w) > self.context else w for w in self.windows]
        self.reader = self.start(self.windows)
        return True


class SlidingWriter(SlidingReader):
    """The same for a reader that can also write several tokens before anyone looks at them."""

    def write(self, count: int | None, writing: Writing) -> Array:
        """Write up to `count` tokens of each sequence, but no further than the first window that is full."""
        self._move()
        # The last token that is written is not read yet, so it may stand behind a full window.
        room = self.context + 1 - max(len(window) for window in self.windows)
        reader: Any = self.reader
        ids = reader.write(room if count is None else min(count, room), writing)
        if ids is NotImplemented:
            return ids
        pairs = zip(self.windows, ids.T, strict=True)
        self.windows = [np.append(window, written[written >= 0]) for window, written in pairs]
        return ids


def reading(
    model: Model,
    params: Tree,
    prompts: Rows,
    sources: Rows | None,
    *,
    max_new_tokens: int,
    cache: bool,
    chunk: int,
    slide: bool,
) -> tuple[Callable[[], Reader], list[int]]:
    """Return what starts a reader of prompts, and how many tokens may follow each.

    slide   a decoder goes on past the context; an encoder-decoder ends there
    """
    slides = slide and isinstance(model.config, DecoderConfig)
    rooms = [room(model, prompt, max_new_tokens, endless=slides) for prompt in prompts]
    if not slides:
        return reader_of(model, params, prompts, sources, cache=cache, chunk=chunk, room=max(rooms)), rooms
    context = model.config.context

    def read(windows: Rows) -> Reader:
        left = min(max_new_tokens, context + 1 - min(len(window) for window in windows))
        return reader_of(model, params, windows, None, cache=cache, chunk=chunk, room=left)()

    def start() -> SlidingReader:
        reader = read(prompts)
        family = SlidingWriter if hasattr(reader, "write") else SlidingReader
        return family(reader, read, prompts, context)

    return start, rooms
