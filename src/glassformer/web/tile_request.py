"""A question for a tile: which array, which part of it, how large on the screen."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from .explorer import Explorer
from .router import only, session_of
from .state import read_index, read_int
from .tiles import LARGEST, as_matrix, cut, statistics


def tile_bytes(explorer: Explorer, question: dict[str, Any]) -> bytes:
    """Return a tile of an array of a run, with the statistics of the whole array.

    state    the run
    what     value, gradient, before, gradient before, or change
    name     of a value or a parameter
    at       one index for each axis but the last two; all zero if left out
    rows, columns    [start, stop) of the rectangle; all if left out
    height, width    cells at most
    """
    only(question, "state", "what", "name", "at", "rows", "columns", "height", "width")
    session = session_of(explorer, question)
    what, name = (_word(question, word) for word in ("what", "name"))
    array = session.array(what, name)
    leading = max(0, array.ndim - 2)
    at = read_index(question["at"]) if "at" in question else (0,) * leading
    matrix = as_matrix(array, at)
    rows, columns = (_span(question.get(w), size) for w, size in zip(("rows", "columns"), matrix.shape, strict=True))
    height, width = (min(read_int(question.get(word, LARGEST), word), LARGEST) for word in ("height", "width"))
    facts = {
        "name": name,
        "what": what,
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "parameter": session.is_parameter(name),
        "all": session.once(f"statistics of {what} {name}", lambda: statistics(array)),
        "here": statistics(matrix),
    }
    return cut(matrix, rows, columns, height, width, facts).to_bytes()


def _word(question: dict[str, Any], name: str) -> str:
    word = question.get(name)
    if not isinstance(word, str):
        raise ConfigError(f"the question has no {name}", hint="give a text")
    return word


def _span(given: Any, size: int) -> tuple[int, int]:
    if given is None:
        return 0, size
    span = read_index(given)
    if len(span) != 2:
        raise ConfigError("a part of an array is [start, stop)", hint="give two whole numbers")
    return span[0], span[1]
