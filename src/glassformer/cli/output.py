"""How results look: tables for people, one JSON object for programs."""

import json
import math
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

SPACE = "␣"

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


def console() -> Console:
    """Return a console for stdout; it leaves color out in pipes and under NO_COLOR."""
    return Console(highlight=False, soft_wrap=True, emoji=False)


def talk(text: str) -> None:
    """Say something to the person at the terminal, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print one JSON object; what stdout's encoding has no letters for, such as stray bytes, as JSON's own escapes."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(_plain(value), allow_nan=False)
    print(text)


def _plain(value: Any) -> Any:
    """Return the value with None for numbers that JSON has no word for: infinities, and what is not a number."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(*columns: str, rows: Iterable[Iterable[Any]] = (), title: str | None = None) -> Table:
    """Return a table of cells of text; columns that start with ">" are numbers, set to the right."""
    result = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        result.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        result.add_row(*row)
    return result


def bytes_text(size: float) -> str:
    """Write a memory size the way people read it: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError


def count_text(number: float) -> str:
    """Write a large count the way people read it: 124.4 M."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f}"


def flops_text(number: float) -> str:
    """Write an amount of arithmetic the way people read it: 284.8 MFLOP, 349.3 GFLOP."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}FLOP"
    return f"{number:,.0f} FLOP"


def visible(text: str) -> str:
    """Return `text` with its white space to be seen: spaces as ␣, line ends and what else does not print as escapes."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return "".join(escaped).replace(" ", SPACE)
