"""Tiles of the arrays of a run, at the resolution of a screen."""

from __future__ import annotations

from ..explorer import RunSession
from ..router import route
from ..tiles import LARGEST, as_matrix, cut, statistics


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
    rows, columns    [start, stop) of the rectangle; all if left out
    height, width    cells at most
    """
    array = session.array(what, name)
    matrix = as_matrix(array, (0,) * max(0, array.ndim - 2) if at is None else at)
    down, across = (
        (0, size) if span is None else span for span, size in zip((rows, columns), matrix.shape, strict=True)
    )
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
