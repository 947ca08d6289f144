"""Parts of arrays in the resolution that a screen needs.

A tile is a rectangle of the last two axes of an array, the others at one index each. Where it has more entries than
the screen has room for, a cell shows the entry of its patch that is farthest from zero: a lone spike stays in sight.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import ConfigError, LengthError

LARGEST = 1024
"""Cells of a tile along one side, at most."""
PART = 1 << 20
"""Numbers of which statistics are made at once."""


class Tile(NamedTuple):
    """A rectangle of an array as cells, each of `step` entries along each side."""

    cells: Array  # (rows, columns), float64
    rows: tuple[int, int]
    columns: tuple[int, int]
    step: tuple[int, int]
    facts: dict[str, Any]

    def to_bytes(self) -> bytes:
        """Return the length of the facts, the facts as JSON, padding to eight bytes, and the cells as float64."""
        facts = {
            **self.facts, "rows": self.rows, "columns": self.columns, "step": self.step, "size": self.cells.shape
        }  # fmt: skip
        head = json.dumps(facts).encode()
        head += b" " * (-(len(head) + 4) % 8)
        return struct.pack("<I", len(head)) + head + self.cells.astype("<f8").tobytes()


def as_matrix(array: Array, at: tuple[int, ...]) -> Array:
    """Return the last two axes of an array, the others at an index; a vector is one row."""
    array = np.asarray(array)
    if array.ndim < 2:
        array = array.reshape(1, -1)
    leading = array.shape[:-2]
    if len(at) != len(leading):
        raise ConfigError(f"the array has shape {array.shape}", hint=f"give {len(leading)} indices of its first axes")
    for number, size in zip(at, leading, strict=True):
        if not 0 <= number < size:
            raise LengthError(f"there is no index {number}", hint=f"the axis has {size}")
    return array[at]


def cut(
    matrix: Array, rows: tuple[int, int], columns: tuple[int, int], height: int, width: int, facts: dict[str, Any]
) -> Tile:
    """Return a rectangle of a matrix in at most `height` times `width` cells."""
    for (start, stop), size in ((rows, matrix.shape[0]), (columns, matrix.shape[1])):
        if not 0 <= start < stop <= size:
            raise LengthError(f"there are no entries {start} to {stop}", hint=f"there are {size}")
    if not (1 <= height <= LARGEST and 1 <= width <= LARGEST):
        raise ConfigError(f"a tile of {height} by {width}", hint=f"ask for 1 to {LARGEST} along each side")
    part = matrix[slice(*rows), slice(*columns)]
    step = -(-part.shape[0] // height), -(-part.shape[1] // width)
    return Tile(_farthest(part, *step), rows, columns, step, facts)


def _farthest(part: Array, down: int, right: int) -> Array:
    """Return for each patch of entries the one that is farthest from zero."""
    part = part.astype(np.float64)
    if (down, right) == (1, 1):
        return part
    below, beside = (-size % step for size, step in zip(part.shape, (down, right), strict=True))
    part = np.pad(part, ((0, below), (0, beside)))
    patches = part.reshape(part.shape[0] // down, down, part.shape[1] // right, right).swapaxes(1, 2)
    flat = patches.reshape(*patches.shape[:2], -1)
    # What is no number is farther than any: it must not hide.
    sizes = np.where(np.isnan(flat), np.inf, np.abs(flat))
    return np.take_along_axis(flat, np.argmax(sizes, axis=-1)[..., None], axis=-1)[..., 0]


def statistics(array: Array) -> dict[str, float | None]:
    """Return what one wants to know of all entries at a glance; what is not finite is left out, and counted."""
    flat = np.asarray(array).reshape(-1)
    size = sum(len(part) for part in _finite(flat))
    found: dict[str, float | None] = {"count": flat.size, "odd": int(flat.size - size)}
    if not size:
        return {**found, **dict.fromkeys(("least", "most", "mean", "spread", "norm"))}
    mean = sum(part.sum() for part in _finite(flat)) / size
    return {
        **found,
        "least": float(min(part.min() for part in _finite(flat))),
        "most": float(max(part.max() for part in _finite(flat))),
        "mean": float(mean),
        "spread": float(np.sqrt(sum(np.square(part - mean).sum() for part in _finite(flat)) / size)),
        "norm": float(np.sqrt(sum(np.square(part).sum() for part in _finite(flat)))),
    }


def _finite(flat: Array) -> Iterator[Array]:
    """Return the finite numbers of an array in float64, a part at a time: all at once take several times its memory."""
    for start in range(0, flat.size, PART):
        part = flat[start : start + PART].astype(np.float64)
        finite = part[np.isfinite(part)]
        if finite.size:
            yield finite
