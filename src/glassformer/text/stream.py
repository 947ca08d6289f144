"""Text as it comes: ids go in one at a time, and only characters that are certain come out.

A character of several bytes may be split over tokens, a space may belong to the token before or after it, and the first
token of a text may be written differently from the others. Decoding each id on its own gets all three wrong. Stop
strings may span tokens too, and nothing that could still become one is let out.
"""

import copy
from collections.abc import Sequence
from typing import Self

from ..core.arrays import Array
from ..core.errors import ConfigError
from .tokenizer import Tokenizer

KEPT = 4  # A character has at most four bytes, so what is undecided lies within the last three ids.
LONGEST = 16


class StreamDecoder:
    """Decode one id after the other: all pieces together are exactly `tokenizer.decode(ids)`.

    after     ids that came before, such as a prompt: the pieces then continue its text, so that the space between
              the prompt's last word and the first new one is there

    Each id costs the decoding of at most a few others, however long the text has become. A tokenizer whose decoder can
    change earlier text says so with a method `holds(id)`: while it is true, nothing is written.
    """

    def __init__(self, tokenizer: Tokenizer, *, after: Sequence[int] | Array = ()) -> None:
        self._tokenizer = tokenizer
        self._holds = getattr(tokenizer, "holds", None)
        self._window: list[int] = []
        self._written = 0  # how much of the window's text is out already
        for i in after:
            self.push(int(i))

    def push(self, id: int) -> str:  # noqa: A002
        """Return the text that this id makes certain: often its own, sometimes none, sometimes more."""
        self._window.append(int(id))
        if self._holds is not None and self._holds(int(id)):
            return ""
        text = self._tokenizer.decode(self._window)
        certain = len(text) - undecided(text)
        piece = text[self._written : certain]
        self._written = max(self._written, certain)
        if len(self._window) >= LONGEST:
            self._forget(len(text) - self._written)
        return piece

    def copy(self) -> Self:
        """Return a second decoder that has read the same ids."""
        twin = copy.copy(self)
        twin._window = list(self._window)
        return twin

    def finish(self) -> str:
        """Return what is left, such as the bytes of a character that never was completed; then start anew."""
        text = self._tokenizer.decode(self._window)
        piece = text[self._written :]
        self._window, self._written = [], 0
        return piece

    def _forget(self, held: int) -> None:
        """Keep the last few ids: the text of those before them is out, except for `held` characters at the end."""
        kept = self._window[-KEPT:]
        written = len(self._tokenizer.decode(kept)) - held
        # Ids without any text would make the next id look like the first of the text.
        if written > 0:
            self._window, self._written = kept, written


def undecided(text: str) -> int:
    """Return how many characters at the end may be the beginning of another one, still short of its last bytes.

    Such bytes decode to one U+FFFD, or to lone surrogates U+DC80 to U+DCFF, one for each of at most three bytes.
    """
    if text.endswith("\ufffd"):
        return 1
    tail = text[-3:]
    return len(tail) - len(tail.rstrip("".join(map(chr, range(0xDC80, 0xDD00)))))


class StopStrings:
    """A filter that passes text up to the first stop string.

    The first is the one that is complete first; of several complete at the same character, the longest. How the text
    is cut into pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        for stop in stops:
            if not stop:
                raise ConfigError("a stop string is empty", hint="use text of at least one character")
        self.stops = tuple(stops)
        self.stopped = False
        self._held = ""

    def push(self, text: str) -> str:
        """Take in more text; return what may be shown. `stopped` tells whether a stop string came."""
        if self.stopped:
            return ""
        text = self._held + text
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in self.stops if stop in text]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return what was held back: no more text comes to complete it."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a beginning of `stop`, short of all of it."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[len(text) - size :]):
            return size
    return 0
