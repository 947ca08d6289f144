"""Parts of arrays at the resolution of a screen.

A tile is a rectangle of the last two axes of an array; the other axes have one index each. If the rectangle has more
entries than the screen has cells, each cell shows the entry of its patch that is farthest from zero, and the tile says
which entry that is. So a single large number stays visible, and pointing at a cell names the entry it shows.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...core.arrays import Array
from ...core.errors import ConfigError, LengthError
from ..explorer import RunSession
from ..router import route

LARGEST = 1024
"""Most cells of a tile along one side."""
PART = 1 << 20
"""Numbers that `statistics` reads at once."""


@route("tile")
def tile(
    session: RunSession,
    what: str,
    name: str,
    at: tuple[int, ...] | None = None,
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
    height: int = LARGEST,
    width: int = LARGEST,
) -> bytes:
    """Return a tile of an array of a run, with the statistics of the whole array.

    what     value, gradient, before, gradient before, or change
    name     of a value or a parameter
    at       one index for each axis but the last two; all zero if left out
    rows, columns    [start, stop) of the rectangle, all if left out; in at most `height` times `width` cells
    """
    array = session.array(what, name)
    matrix = as_matrix(array, (0,) * max(0, array.ndim - 2) if at is None else at)
    down, across = rows or (0, matrix.shape[0]), columns or (0, matrix.shape[1])
    facts = {
        "name": name,
        "what": what,
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "parameter": session.is_parameter(name),
        "all": session.once(f"statistics of {what} {name}", lambda: statistics(array)),
        "here": statistics(matrix),
    }
    return cut(matrix, down, across, min(height, LARGEST), min(width, LARGEST), facts).to_bytes()


class Tile(NamedTuple):
    """A rectangle of an array as cells, each of `step` entries along each side.

    cells    (rows, columns), float64
    places   of coarse cells: the entries they show, as flat indices into the rectangle; None if a cell is one entry
    """

    cells: Array
    places: Array | None
    rows: tuple[int, int]
    columns: tuple[int, int]
    step: tuple[int, int]
    facts: dict[str, Any]

    def to_bytes(self) -> bytes:
        """Return the length of the facts, the facts as JSON padded to eight bytes, float64 cells and uint32 places."""
        facts = {**self.facts, "rows": self.rows, "columns": self.columns, "step": self.step, "size": self.cells.shape}
        head = json.dumps(facts).encode()
        head += b" " * (-(len(head) + 4) % 8)
        places = b"" if self.places is None else self.places.astype("<u4").tobytes()
        return struct.pack("<I", len(head)) + head + self.cells.astype("<f8").tobytes() + places


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
    cells, places = (part.astype(np.float64), None) if step == (1, 1) else _farthest(part, *step)
    return Tile(cells, places, rows, columns, step, facts)


def _farthest(part: Array, down: int, right: int) -> tuple[Array, Array]:
    """Return the entry of each patch that is farthest from zero, and its flat index in the part."""
    below, beside = (-size % step for size, step in zip(part.shape, (down, right), strict=True))
    padded = np.pad(part.astype(np.float64), ((0, below), (0, beside)))
    patches = padded.reshape(padded.shape[0] // down, down, padded.shape[1] // right, right).swapaxes(1, 2)
    flat = patches.reshape(*patches.shape[:2], -1)
    # NaN counts as the largest: it must not hide. Padding is zero, and the first entry of a patch is never padding.
    within = np.argmax(np.where(np.isnan(flat), np.inf, np.abs(flat)), axis=-1)
    rows, columns = np.indices(within.shape)
    places = (rows * down + within // right) * part.shape[1] + columns * right + within % right
    return np.take_along_axis(flat, within[..., None], axis=-1)[..., 0], places


def statistics(array: Array) -> dict[str, float | None]:
    """Return range, mean, spread and norm of the finite entries, and how many are not finite (`odd`)."""
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
    """Yield the finite numbers of an array in float64, a part at a time to save memory."""
    for start in range(0, flat.size, PART):
        part = flat[start : start + PART].astype(np.float64)
        finite = part[np.isfinite(part)]
        if finite.size:
            yield finite
