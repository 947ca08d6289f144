"""One token per byte of the UTF-8 text: every text can be encoded, whatever its language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array
from ..errors import TokenError
from .vocabulary import Comparable, check_decodable, check_specials, field

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
        try:
            encoded = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise TokenError(
                f"character U+{ord(text[error.start]):04X} at position {error.start:,} is half of a pair of surrogates",
                hint="leave it out: it is no character on its own",
            ) from None
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

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "specials": list(self.specials)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ByteTokenizer:
        """Build the tokenizer that `to_dict` described."""
        return cls(specials=field(data, "specials", cls.kind))

    def __repr__(self) -> str:
        return f"ByteTokenizer(specials={list(self.specials)})"
