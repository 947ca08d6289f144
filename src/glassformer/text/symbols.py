"""Tokenizers with one id for each character, word or byte, and what all tokenizers check."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ..core.arrays import Array, check_ids
from ..core.errors import ConfigError, DTypeError, TokenError, did_you_mean


class Comparable:
    """A tokenizer that is equal to those that are stored alike; `size` says how many different ids there are."""

    kind: ClassVar[str]
    stored: ClassVar[str | None] = None  # the argument that is stored beside the specials
    specials: dict[str, int]
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything needed to build this tokenizer again, ready for JSON."""
        pieces = {} if self.stored is None else {self.stored: list(getattr(self, self.stored))}
        return {"kind": self.kind, **pieces, "specials": list(self.specials)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build the tokenizer that `to_dict` described."""
        names = ["specials"] if cls.stored is None else [cls.stored, "specials"]
        return cls(**{name: field(data, name, cls.kind) for name in names})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size:,} ids, specials={list(self.specials)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, *self.specials))


class Listed(Comparable):
    """A tokenizer with a list of its pieces: the special tokens first, then those of text."""

    between: ClassVar[str] = ""

    def __init__(self, specials: Sequence[str], pieces: Sequence[str]) -> None:
        self.specials = {name: i for i, name in enumerate(specials)}
        self._pieces = [*specials, *pieces]
        self.size = len(self._pieces)

    def decode(self, ids: Sequence[int] | Array) -> str:
        """Return the text of `ids`; special tokens appear by name."""
        return self.between.join([self._pieces[i] for i in check_decodable(ids, self.size).tolist()])


def check_specials(specials: Any) -> tuple[str, ...]:
    """Return the names of special tokens as a tuple; refuse anything but distinct strings that are not empty."""
    names = tuple(specials) if isinstance(specials, list | tuple) else (None,)
    if any(not isinstance(name, str) or not name for name in names) or len(set(names)) != len(names):
        fact = f"special tokens are {specials!r}"
        raise ConfigError(fact, hint="give each one its own name, such as '<pad>', '<bos>', '<eos>'")
    return tuple(str(name) for name in names)


def check_decodable(ids: Sequence[int] | Array, size: int) -> Array:
    """Return `ids` as a one-dimensional integer array; refuse ids outside [0, size)."""
    ids = np.asarray(ids)
    if ids.size == 0:
        return np.zeros(0, dtype=np.int64)
    if ids.ndim != 1:
        fact = f"expected one sequence of ids, got an array of shape {ids.shape}"
        raise DTypeError(fact, hint="decode one row at a time")
    check_ids(ids, size)
    return ids.astype(np.int64)


def utf8(text: str, *, errors: str, hint: str) -> bytes:
    """Return the UTF-8 of a text; refuse lone surrogates, halves of characters that have none, but for `errors`."""
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        fact = f"character U+{ord(text[error.start]):04X} at position {error.start:,} is half of a pair of surrogates"
        raise TokenError(fact, hint=hint) from None


def check_characters(text: str) -> str:
    """Return the text; refuse lone surrogates: they are halves of characters and have no UTF-8 form."""
    hint = "leave it out; text that is not UTF-8 throughout can be encoded byte by byte with ByteTokenizer"
    utf8(text, errors="strict", hint=hint)
    return text


def field(data: dict[str, Any], name: str, family: str) -> Any:
    """Return one field of a tokenizer's dict; refuse a dict without it."""
    if name not in data:
        fact = f"the {family} tokenizer was stored without its {name!r}"
        raise ConfigError(fact, hint="store it with to_dict(), unchanged")
    return data[name]


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
        indices: Array = np.searchsorted(self._codes, codes)
        # A code that no character has stands behind the last.
        known = np.append(self._codes, np.uint32(0xFFFFFFFF))[indices] == codes
        if not known.all():
            raise self._unknown(text, int(np.argmin(known)))
        return indices.astype(np.int64) + len(self.specials)

    def to_dict(self) -> dict[str, Any]:
        # Escaped, because JSON text in UTF-8 cannot carry a lone surrogate.
        characters = self.characters.encode("unicode_escape").decode("ascii")
        return {"kind": self.kind, "characters": characters, "specials": list(self.specials)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build the tokenizer that `to_dict` described."""
        escaped = field(data, "characters", cls.kind)
        try:
            characters = escaped.encode("ascii").decode("unicode_escape")
        except (AttributeError, UnicodeError):
            fact = f"the characters of a stored tokenizer cannot be read: {escaped!r}"
            raise ConfigError(fact, hint="store it with to_dict(), unchanged") from None
        return cls(characters, specials=field(data, "specials", cls.kind))

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


class WordTokenizer(Listed):
    """The special tokens first, then the words in the order given; text is split at white space."""

    kind: ClassVar[str] = "words"
    stored: ClassVar[str | None] = "words"
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


BYTES = 256


class ByteTokenizer(Comparable):
    """Byte b is id b; special tokens follow from 256 on.

    Decoding loses nothing: bytes that are no valid UTF-8, which a half-trained model readily produces, become lone
    surrogates (U+DC80 to U+DCFF, Python's `surrogateescape`) and encode back to the same bytes.
    """

    kind: ClassVar[str] = "bytes"

    def __init__(self, *, specials: Sequence[str] = ()) -> None:
        self.specials = {name: BYTES + i for i, name in enumerate(check_specials(specials))}
        self.size = BYTES + len(self.specials)

    def encode(self, text: str) -> Array:
        """Return the UTF-8 bytes of `text`: int64 (T,)."""
        encoded = utf8(text, errors="surrogateescape", hint="leave it out: it is no character on its own")
        return np.frombuffer(encoded, dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Sequence[int] | Array) -> str:
        """Return the text of `ids`; special tokens appear by name."""
        ids = check_decodable(ids, self.size)
        names, pieces = list(self.specials), []
        start = 0
        for stop in [*np.flatnonzero(ids >= BYTES).tolist(), len(ids)]:
            pieces.append(ids[start:stop].astype(np.uint8).tobytes().decode("utf-8", "surrogateescape"))
            if stop < len(ids):
                pieces.append(names[int(ids[stop]) - BYTES])
            start = stop + 1
        return "".join(pieces)


def vocabulary_ids(vocabulary: Any) -> Iterable[int]:
    """Return the ids in a vocabulary; Unigram has a list of pieces, whose ids are their indices."""
    return vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary or ()))


def flat_steps(step: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """Return the steps that a tokenizer.json describes, one after the other; a sequence has them `inside` it."""
    if step is None or step["type"] != "Sequence":
        return [] if step is None else [step]
    return [flat for part in step[inside] for flat in flat_steps(part, inside)]
