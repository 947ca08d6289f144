"""Printing of results: tables for people, tab-separated lines in a pipe, one JSON object for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from ..core.files import plain_json
from ..core.format import cell_text
from ..progress import log as log
from ..progress import plural as plural
from ..progress.console import SafeConsole


def console() -> SafeConsole:
    """Return a console for stdout; it leaves color out in pipes and under NO_COLOR."""
    return SafeConsole(sys.stdout, highlight=False, markup=False, soft_wrap=True, emoji=False)


def print_baselines(accuracy: float, interval: Sequence[float], commonest: float, bag: float) -> None:
    """Print how certain the accuracy of a classifier is, and what is right without it."""
    low, high = interval
    easy = f"always the commonest class: {commonest:.1%}, a bag of words (naive Bayes): {bag:.1%}"
    print(f"95 % interval {low:.1%} to {high:.1%}; {easy}")
    if max(commonest, bag) > accuracy:
        better = "a bag of words" if bag > accuracy else "always saying the commonest class"
        print(f"{better} is better than this model: use more texts, or start from a trained one (--from)")


def print_json(value: Any) -> None:
    """Print one JSON object; characters that stdout's encoding lacks become JSON escapes."""
    text = json.dumps(plain_json(value), ensure_ascii=False, allow_nan=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain_json(value), allow_nan=False)
    print(text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a table: with borders on a terminal, tab-separated with a header line in a pipe.

    Columns that start with ">" hold numbers: they are set to the right and never cut.
    """
    out = console()
    names = [column.removeprefix(">") for column in columns]
    cells = [[cell if isinstance(cell, Text) else Text(cell_text(cell)) for cell in row] for row in rows]
    if not out.is_terminal:
        if title is not None:
            print("# " + title.replace("\n", "\n# "))
        for line in (names, *([cell.plain for cell in row] for row in cells)):
            print("\t".join(" ".join(part.splitlines()).replace("\t", " ") for part in line))
        return
    if title is not None:
        out.print(Text(title, style="italic"))  # as wide as the terminal, not as the table
    table = Table(header_style="bold")
    for column in columns:
        is_number = column.startswith(">")
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(Text(column.removeprefix(">")), justify=justify, no_wrap=is_number, overflow="fold")
    for row in cells:
        table.add_row(*row)
    out.print(table, soft_wrap=False)
