"""What every tokenizer checks: its named special tokens, the ids it is asked to decode, the dict it is read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array, check_ids
from ..errors import ConfigError, DTypeError


def check_specials(specials: Any) -> tuple[str, ...]:
    """Return the names of special tokens as a tuple; refuse anything but distinct strings that are not empty."""
    names = tuple(specials) if isinstance(specials, list | tuple) else (None,)
    if any(not isinstance(name, str) or not name for name in names) or len(set(names)) != len(names):
        raise ConfigError(
            f"special tokens are {specials!r}", hint="give each one its own name, such as '<pad>', '<bos>', '<eos>'"
        )
    return tuple(str(name) for name in names)


def check_decodable(ids: Sequence[int] | Array, size: int) -> Array:
    """Return `ids` as a one-dimensional integer array; refuse ids outside [0, size)."""
    ids = np.asarray(ids)
    if ids.size == 0:
        return np.zeros(0, dtype=np.int64)
    if ids.ndim != 1:
        raise DTypeError(
            f"expected one sequence of ids, got an array of shape {ids.shape}", hint="decode one row at a time"
        )
    check_ids(ids, size)
    return ids.astype(np.int64)


def field(data: dict[str, Any], name: str, kind: str) -> Any:
    """Return one field of a tokenizer's dict; refuse a dict without it."""
    if name not in data:
        raise ConfigError(
            f"the {kind} tokenizer was stored without its {name!r}", hint="store it with to_dict(), unchanged"
        )
    return data[name]
