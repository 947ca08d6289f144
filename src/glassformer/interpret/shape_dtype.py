"""Placeholders for freed arrays: their shapes and dtypes, and which of them were the same array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class ShapeDtype:
    """An array without its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that its numbers took."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]


class Placeholders:
    """Puts `ShapeDtype` in the place of arrays, in lists, dicts, tuples and records of them.

    What was one object stays one object, so that arrays and records can still be told apart by identity.
    """

    def __init__(self) -> None:
        # Each with the thing itself: the identity of what is gone may be given to something else.
        self._known: dict[int, tuple[Any, Any]] = {}

    def keep(self, thing: Any, instead: Any) -> None:
        """Let something of the same structure stand for a thing and for everything in it: itself, to keep it."""
        self._known[id(thing)] = (thing, instead)
        if isinstance(thing, dict):
            for name, part in thing.items():
                self.keep(part, instead[name])
        elif isinstance(thing, list | tuple):
            for part, other in zip(thing, instead, strict=True):
                self.keep(part, other)

    def of(self, thing: Any) -> Any:
        """Return a thing with placeholders for its arrays."""
        if id(thing) not in self._known:
            self._known[id(thing)] = (thing, self._made(thing))
        return self._known[id(thing)][1]

    def _made(self, thing: Any) -> Any:
        if isinstance(thing, np.ndarray):
            return ShapeDtype(thing.shape, thing.dtype)
        if isinstance(thing, dict):
            return {name: self.of(part) for name, part in thing.items()}
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return type(thing)(*map(self.of, thing))
        return type(thing)(map(self.of, thing)) if isinstance(thing, list | tuple) else thing
