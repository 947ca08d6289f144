"""One token per character of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, TokenError
from .vocabulary import Listed, check_specials, field


class CharTokenizer(Listed):
    """The special tokens first, then the distinct characters in the order of their code points.

    `characters` is any text that holds every character to be known; order and repetition do not matter.
    Encoding never yields a special token: ask for one by name, as in `tokenizer.specials["<bos>"]`.
    """

    kind: ClassVar[str] = "chars"

    def __init__(self, characters: str | Iterable[str], *, specials: Sequence[str] = ()) -> None:
        known = sorted(set(characters))
        if any(len(character) != 1 for character in known):
            long = next(character for character in known if len(character) != 1)
            raise ConfigError(f"{long!r} is not one character", hint="pass a text, or single characters")
        names = check_specials(specials)
        if not known and not names:
            raise ConfigError("a tokenizer needs at least one character", hint="pass a text that is not empty")
        super().__init__(names, known)
        self.characters = "".join(known)
        self._codes = _codes(self.characters)

    def encode(self, text: str) -> Array:
        """Return the ids of the characters of `text`: int64 (T,)."""
        codes = _codes(text)
        places: Array = np.searchsorted(self._codes, codes)
        # A code that no character has stands for the place behind the last.
        found = np.append(self._codes, np.uint32(0xFFFFFFFF))[places] == codes
        if not found.all():
            raise self._unknown(text, int(np.argmin(found)))
        return places.astype(np.int64) + len(self.specials)

    def to_dict(self) -> dict[str, Any]:
        # Escaped, because JSON text in UTF-8 cannot carry a lone surrogate.
        characters = self.characters.encode("unicode_escape").decode("ascii")
        return {"kind": self.kind, "characters": characters, "specials": list(self.specials)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CharTokenizer:
        """Build the tokenizer that `to_dict` described."""
        escaped = field(data, "characters", cls.kind)
        try:
            characters = escaped.encode("ascii").decode("unicode_escape")
        except (AttributeError, UnicodeError):
            fact = f"the characters of a stored tokenizer cannot be read: {escaped!r}"
            raise ConfigError(fact, hint="store it with to_dict(), unchanged") from None
        return cls(characters, specials=field(data, "specials", cls.kind))

    def __repr__(self) -> str:
        return f"CharTokenizer({len(self.characters)} characters, specials={list(self.specials)})"

    def _unknown(self, text: str, position: int) -> TokenError:
        character = text[position]
        around = text[max(0, position - 10) : position + 11]
        known = repr(self.characters) if len(self.characters) <= 80 else f"{len(self.characters):,} others"
        return TokenError(
            f"character {character!r} (U+{ord(character):04X}) at position {position:,}, in {around!r}, is unknown",
            hint=f"leave it out, or train on data that holds it; known: {known}",
        )


def _codes(text: str) -> Array:
    """Return the code point of every character: uint32 (T,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
