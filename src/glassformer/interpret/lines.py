"""The lines of source that computed something: of any function, as it is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]


class Source(NamedTuple):
    """The text of a function.

    name    of the function, or of the method with its class
    file    from the package on; of a registered function, the name of its file alone
    line    where it begins
    lines   the first and the last of the lines that computed what is asked about, as far as that can be told
    """

    name: str
    file: str
    line: int
    text: str
    lines: tuple[int, int]


def source_of(function: Callable[..., Any] | None, piece: str = "") -> Source | None:
    """Return the source of a function and the lines with a piece of text; None where there is no file to read."""
    if function is None:
        return None
    raw = inspect.unwrap(function)
    found = _text(raw)
    if found is None:
        return None
    file, first, text = found
    rows = text.splitlines()
    hits = [number for number, row in enumerate(rows) if piece and piece in row]
    # Docstrings quote formulas: what computes stands below.
    hits = [number for number in hits if number >= _body(text)] or list(range(_body(text), len(rows)))
    return Source(raw.__qualname__, file, first, text, (first + hits[0], first + hits[-1]))


@cache
def _text(function: Callable[..., Any]) -> tuple[str, int, str] | None:
    try:
        rows, first = inspect.getsourcelines(function)
        path = Path(inspect.getsourcefile(function) or "")
    except (OSError, TypeError):
        return None
    inside = path.is_relative_to(PACKAGE)
    return path.relative_to(PACKAGE).as_posix() if inside else path.name, first, "".join(rows)


@cache
def _body(text: str) -> int:
    """Return the number of the first row behind the signature and the docstring."""
    import ast
    import textwrap

    function: Any = ast.parse(textwrap.dedent(text)).body[0]
    statements = function.body
    first = statements[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(statements) > 1:
        return int(statements[1].lineno) - 1
    return int(first.lineno) - 1
