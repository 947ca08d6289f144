"""The tokenizer of llama2.c: characters, joined into the pieces of the highest score first (SentencePiece's BPE).

`tokenizer.bin` holds the longest length of a piece, then for every piece its score, its length and its bytes. Older
files hold the 256 bytes as they are, where later ones spell them <0x00> to <0xFF>.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, WeightsError
from ..files import explained
from .published import check_characters
from .vocabulary import Comparable, check_decodable, field

UNKNOWN, START, END = 0, 1, 2
FIRST_BYTE = 3
"""The ids from here on stand for the 256 bytes, spelled <0x00> to <0xFF>."""
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_HIGHEST_SIZE = 1 << 20


class Llama2cTokenizer(Comparable):
    """Pieces with scores: the unknown, start and end tokens, the 256 bytes, then the pieces of text.

    A text gets a space in front, as its words have; characters without a piece are spelled as their bytes. Then the
    two neighbors whose join has the highest score, the first of equals, are joined, until no two can be.
    """

    kind: ClassVar[str] = "llama2c"

    def __init__(self, pieces: Sequence[str], scores: Sequence[float]) -> None:
        self.vocabulary = tuple(pieces)
        self.size = len(self.vocabulary)
        self.scores = tuple(float(score) for score in scores)
        _check(self.vocabulary, self.scores)
        self.specials = {self.vocabulary[i].strip(): i for i in (UNKNOWN, START, END)}
        # Special tokens are not text: nothing that is typed becomes one.
        self._ids = {piece: i for i, piece in reversed(list(enumerate(self.vocabulary))) if i > END}
        self._bytes = [piece.encode() for piece in self.vocabulary]
        # The file spells special tokens with line ends around them.
        self._bytes[:FIRST_BYTE] = [name.encode() for name in self.specials]
        self._bytes[FIRST_BYTE : FIRST_BYTE + 256] = [bytes([byte]) for byte in range(256)]

    @classmethod
    def load(cls, path: str | Path) -> Llama2cTokenizer:
        """Read a `tokenizer.bin`."""
        with explained(Path(path), WeightsError, "check the path", "read"):
            content = Path(path).read_bytes()
        try:
            pieces, scores = _parse(content)
            return cls(_spelled(pieces), scores)
        except (struct.error, UnicodeDecodeError, ConfigError) as error:
            reason = error.fact if isinstance(error, ConfigError) else str(error)
            raise WeightsError(f"{path} is no tokenizer.bin of llama2.c: {reason}", hint="check the file") from None

    def encode(self, text: str) -> Array:
        """Return the ids of `text`: int64 (T,)."""
        check_characters(text)
        ids: list[int] = []
        for character in f" {text}" if text else "":
            known = self._ids.get(character)
            ids += [FIRST_BYTE + byte for byte in character.encode()] if known is None else [known]
        return np.array(self._joined(ids), dtype=np.int64)

    def decode(self, ids: Sequence[int] | Array) -> str:
        """Return the text of `ids`; the space that `encode` put in front is taken away again."""
        parts, before = [], START
        for i in check_decodable(ids, self.size).tolist():
            part = self._bytes[i]
            parts.append(part[1:] if before == START and part.startswith(b" ") else part)
            before = i
        return b"".join(parts).decode("utf-8", "replace")

    def pieces(self, text: str) -> list[tuple[str, int]]:
        """Return what `text` is cut into, to look at: the spelling of each piece and its id."""
        return [(self.vocabulary[i], i) for i in self.encode(text).tolist()]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "pieces": list(self.vocabulary), "scores": list(self.scores)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Llama2cTokenizer:
        """Build the tokenizer that `to_dict` described."""
        pieces, scores = field(data, "pieces", cls.kind), field(data, "scores", cls.kind)
        numbers = isinstance(scores, list) and all(isinstance(score, int | float) for score in scores)
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces) or not numbers:
            raise ConfigError("the pieces and scores of a stored tokenizer are damaged", hint="store it with to_dict()")
        return cls(pieces, scores)

    def __repr__(self) -> str:
        return f"Llama2cTokenizer({self.size:,} ids)"

    def _joined(self, ids: list[int]) -> list[int]:
        """Join neighbors, the highest score first and the leftmost of equals.

        What can be joined waits in a heap, ordered like that. Joining makes the entries of both neighbors outdated:
        they are recognized by their ids, which are no longer there, and passed over.
        """
        after, before = list(range(1, len(ids) + 1)), list(range(-1, len(ids) - 1))
        heap: list[tuple[float, int, int, int, int]] = []

        def offer(left: int) -> None:
            right = after[left]
            if right < len(ids):
                join = self._ids.get(self.vocabulary[ids[left]] + self.vocabulary[ids[right]])
                if join is not None:
                    heapq.heappush(heap, (-self.scores[join], left, ids[left], ids[right], join))

        for left in range(len(ids)):
            offer(left)
        gone = -1
        while heap:
            _, left, first, second, join = heapq.heappop(heap)
            right = after[left]
            if ids[left] != first or right >= len(ids) or ids[right] != second:
                continue
            ids[left], ids[right] = join, gone
            after[left] = after[right]
            if after[left] < len(ids):
                before[after[left]] = left
            offer(left)
            if before[left] >= 0:
                offer(before[left])
        return [i for i in ids if i != gone]


def _check(pieces: tuple[str, ...], scores: tuple[float, ...]) -> None:
    if len(pieces) != len(scores) or not FIRST_BYTE + 256 < len(pieces) <= _HIGHEST_SIZE:
        fact = f"a tokenizer of llama2.c has {len(pieces):,} pieces and {len(scores):,} scores"
        raise ConfigError(fact, hint=f"it needs one score for each piece, and more than {FIRST_BYTE + 256} of them")
    if list(pieces[FIRST_BYTE : FIRST_BYTE + 256]) != _BYTES:
        raise ConfigError("the pieces from 3 to 258 are not the bytes <0x00> to <0xFF>", hint="check the tokenizer")
    if " " not in pieces or not all(pieces) or not all(map(math.isfinite, scores)):
        raise ConfigError("a piece is empty, a score not finite, or there is no piece for a space", hint="check it")
    if len({piece.strip() for piece in pieces[:FIRST_BYTE]}) < FIRST_BYTE:
        raise ConfigError(f"the special tokens {pieces[:FIRST_BYTE]} are not three names", hint="check the tokenizer")


def _spelled(pieces: list[bytes]) -> list[str]:
    """Return the pieces as text, with the bytes in the later spelling."""
    first, last = FIRST_BYTE, FIRST_BYTE + 256
    older = ([bytes([byte]) for byte in range(256)], [chr(byte).encode() for byte in range(256)])
    middle = _BYTES if pieces[first:last] in older else [piece.decode() for piece in pieces[first:last]]
    return [*(piece.decode() for piece in pieces[:first]), *middle, *(piece.decode() for piece in pieces[last:])]


def _parse(content: bytes) -> tuple[list[bytes], list[float]]:
    pieces: list[bytes] = []
    scores: list[float] = []
    place = 4
    while place < len(content):
        score, length = struct.unpack_from("<fi", content, place)
        place += 8 + length
        if length < 0 or place > len(content) or len(pieces) >= _HIGHEST_SIZE:
            raise struct.error(f"piece {len(pieces)} has a length of {length:,} bytes")
        pieces.append(content[place - length : place])
        scores.append(score)
    return pieces, scores
