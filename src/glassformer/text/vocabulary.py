"""What tokenizers share: how they compare, and what they check in specials, in ids to decode and in stored dicts."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array, check_ids
from ..errors import ConfigError, DTypeError


class Comparable:
    """A tokenizer that is equal to those that are stored alike; `size` says how many different ids there are."""

    kind: ClassVar[str]
    specials: dict[str, int]
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything needed to build this tokenizer again, ready for JSON."""
        raise NotImplementedError

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


def field(data: dict[str, Any], name: str, family: str) -> Any:
    """Return one field of a tokenizer's dict; refuse a dict without it."""
    if name not in data:
        fact = f"the {family} tokenizer was stored without its {name!r}"
        raise ConfigError(fact, hint="store it with to_dict(), unchanged")
    return data[name]
