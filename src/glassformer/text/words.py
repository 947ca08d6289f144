"""One token per word of a fixed list, for tasks whose symbols are longer than one character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, TokenError, did_you_mean
from .vocabulary import Listed, check_specials, field


class WordTokenizer(Listed):
    """The special tokens first, then the words in the order given; text is split at white space."""

    kind: ClassVar[str] = "words"
    between: ClassVar[str] = " "

    def __init__(self, words: Iterable[str], *, specials: Sequence[str] = ()) -> None:
        self.words = tuple(words)
        names = check_specials(specials)
        wrong = [word for word in self.words if word.split() != [word]]
        if wrong or not self.words or len({*self.words, *names}) != len(self.words) + len(names):
            fact = f"words must be distinct and hold no white space; got {list(self.words)[:20]} and {list(names)}"
            raise ConfigError(fact, hint="name each word once")
        super().__init__(names, self.words)
        self._ids = {word: i for i, word in enumerate(self._pieces) if i >= len(names)}

    def encode(self, text: str) -> Array:
        """Return the ids of the words of `text`: int64 (T,)."""
        words = text.split()
        for position, word in enumerate(words):
            if word not in self._ids:
                fact = f"word {word!r} at position {position:,} is unknown"
                raise TokenError(fact, hint=did_you_mean(word, self.words))
        return np.array([self._ids[word] for word in words], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "words": list(self.words), "specials": list(self.specials)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> WordTokenizer:
        """Build the tokenizer that `to_dict` described."""
        return cls(field(data, "words", cls.kind), specials=field(data, "specials", cls.kind))

    def __repr__(self) -> str:
        return f"WordTokenizer({len(self.words)} words, specials={list(self.specials)})"
