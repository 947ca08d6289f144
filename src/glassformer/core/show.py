"""Named arrays as tables for notebooks: one row each, with its shape, its numbers and a small heat map.

    show(params)            a tree of parameters, gradients, a record
    run, gradients(run)     show themselves, and so do lens(run), attribute(run, …) and the other results

A heat map is red where numbers are positive, blue where they are negative, and lets the page through where they are
zero: it reads the same on a light page and on a dark one. Arrays larger than the map are averaged into its cells.
"""

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, Tree
from .quantized import Quantized
from .tree import flatten

CELLS = (16, 40)
"""Rows and columns of a heat map, at most."""
ROWS = 120
"""Most arrays that are shown; a last line counts the others."""
POSITIVE, NEGATIVE = (202, 60, 50), (45, 105, 190)

_STYLE = (
    "border-collapse:collapse;font-size:12px;font-family:ui-monospace,monospace",
    "padding:2px 10px;text-align:left;vertical-align:middle;white-space:nowrap;background:none",
)


class NamedValues(Mapping[str, Array]):
    """Arrays by the names of values; notebooks show them as a table."""

    @property
    def known(self) -> Mapping[str, Any]:
        """Everything that has a name."""
        raise NotImplementedError

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.known)

    def _repr_html_(self) -> str:
        return html_of(repr(self).strip("<>"), self)


class Shown:
    """Named arrays that show themselves."""

    def __init__(self, arrays: Mapping[str, Any], title: str) -> None:
        self.arrays, self.title = arrays, title

    def _repr_html_(self) -> str:
        return html_of(self.title, self.arrays)

    def __repr__(self) -> str:
        lines = [f"{name:<48} {_shape(x):<22} {_numbers(x)}" for name, x in list(self.arrays.items())[:ROWS]]
        return "\n".join([self.title, *lines, *_left_out(len(self.arrays))])


def show(tree: Tree, title: str = "") -> Shown:
    """Return what shows the arrays of a tree, of a mapping from names to arrays, or of a single one."""
    arrays = dict(tree) if isinstance(tree, Mapping) and not isinstance(tree, dict) else flatten(tree)
    return Shown(arrays, title or f"{len(arrays)} arrays")


def html_of(title: str, named: Mapping[str, Any]) -> str:
    """Return a table of named arrays, with nothing in it that would have to be fetched."""
    rows = [(name, _shape(x), _numbers(x), _picture(x)) for name, x in islice(named.items(), ROWS)]
    return table_html(title, (), rows, _left_out(len(named)))


def table_html(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> str:
    """Return what a method found as a table; a cell may be a word, a number, or a `Map`."""
    style = f'style="{_STYLE[1]}"'
    head = "".join(f"<th {style}>{escape(name)}</th>" for name in columns)
    cells = ("".join(f"<td {style}>{_cell(cell)}</td>" for cell in row) for row in rows[:ROWS])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    lines = "".join(f"<div>{escape(line)}</div>" for line in [*_left_out(len(rows)), *notes])
    table = f'<table style="{_STYLE[0]}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f"<div><b>{escape(title)}</b>{table}{lines}</div>"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as lines of text, without its pictures."""
    drawn = {n for row in rows for n, cell in enumerate(row) if isinstance(cell, Map)}
    each = [list(columns), *([_text(cell) for cell in row] for row in rows[:ROWS])]
    cells = [[cell for n, cell in enumerate(row) if n not in drawn] for row in each]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([*(line.rstrip() for line in lines), *_left_out(len(rows))])


TableParts = tuple[str, Sequence[str], list[list[Any]], list[str]]
"""The title of a table, its columns, rows and notes."""


class Tabled:
    """A result that shows itself as a table, in notebooks and as text."""

    def _table(self) -> TableParts:
        raise NotImplementedError

    def __repr__(self) -> str:
        title, columns, rows, notes = self._table()
        return "\n".join([title, table_text(columns, rows), *notes])

    def _repr_html_(self) -> str:
        return table_html(*self._table())


class Table(list[Any]):
    """A list of named tuples or dataclasses that shows itself as a table."""

    def __repr__(self) -> str:
        return table_text(*self._table()) if self else "[]"

    def _repr_html_(self) -> str:
        return table_html("", *self._table())

    def _table(self) -> tuple[list[str], list[list[Any]]]:
        rows = [row._asdict() if hasattr(row, "_asdict") else vars(row) for row in self]
        return list(rows[0]) if rows else [], [list(row.values()) for row in rows]


class Tables(dict[str, Any]):
    """Results by name that show themselves one below the other."""

    def _repr_html_(self) -> str:
        return "".join(f"<div><b>{escape(name)}</b>{one._repr_html_()}</div>" for name, one in self.items())


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float | np.floating) else str(cell)


class Map(NamedTuple):
    """Numbers to be drawn in a cell of a table.

    largest   has the full color; the largest of the numbers unless given
    cells     rows and columns at most; `size`, the dots that each is wide
    """

    numbers: Array
    largest: float | None = None
    cells: tuple[int, int] = (64, 64)
    size: int = 10


def _cell(cell: Any) -> str:
    if not isinstance(cell, Map):
        return escape(_text(cell))
    grid = cells_of(np.asarray(cell.numbers, dtype=np.float64), cell.cells)
    source = base64.b64encode(png_of(colored(grid, cell.largest))).decode()
    height, width = (cell.size * count for count in grid.shape)
    style = f"width:{width}px;height:{height}px;image-rendering:pixelated"
    return f'<img alt="heat map" style="{style}" src="data:image/png;base64,{source}">'


def _left_out(count: int) -> list[str]:
    return [f"… and {count - ROWS:,} more"] if count > ROWS else []


def _shape(x: Any) -> str:
    return f"{'×'.join(map(str, x.shape)) or 'one number'} {getattr(x, 'dtype', '')}".strip()


def _numbers(x: Any) -> str:
    """Return mean and spread, the smallest and the largest."""
    if isinstance(x, Quantized):
        return f"in {x.form} blocks"
    x = np.asarray(x)
    if x.size == 0:
        return "empty"
    if x.size == 1:
        return f"{x.reshape(-1)[0]:.4g}"
    if x.dtype.kind not in "fiub":
        return ""
    x = x.astype(np.float64)
    wrong = x.size - int(np.isfinite(x).sum())
    if wrong:
        return f"{wrong:,} of {x.size:,} not finite"
    return f"{x.mean():.3g} ± {x.std():.3g}, {x.min():.3g} … {x.max():.3g}"


def _picture(x: Any) -> Map | None:
    if isinstance(x, Quantized) or np.asarray(x).dtype.kind not in "fiub" or np.ndim(x) == 0 or np.size(x) < 2:
        return None
    return Map(x, cells=CELLS, size=4)


def cells_of(x: Array, cells: tuple[int, int]) -> Array:
    """Return an array of any shape as a grid of at most `cells` rows and columns of means."""
    while x.ndim > 2:  # the first example, and the first head
        x = x[0]
    x = np.atleast_2d(x)
    for axis, most in enumerate(cells):
        if x.shape[axis] > most:
            starts = np.arange(most) * x.shape[axis] // most
            sizes = np.diff([*starts, x.shape[axis]])
            x = np.add.reduceat(x, starts, axis=axis) / np.expand_dims(sizes, 1 - axis)
    return x


def colored(grid: Array, largest: float | None = None) -> Array:
    """Return red, green, blue and opacity (…, 4): the farther from zero, the less the page shows through."""
    grid = np.nan_to_num(grid, nan=0.0, posinf=0.0, neginf=0.0)
    largest = (np.abs(grid).max() if largest is None else largest) or 1.0
    image = np.empty((*grid.shape, 4), dtype=np.uint8)
    image[..., :3] = np.where((grid >= 0)[..., None], POSITIVE, NEGATIVE)
    image[..., 3] = np.round(255 * np.minimum(np.abs(grid) / largest, 1))
    return image


def png_of(image: Array) -> bytes:
    """Return an image (rows, columns, 4) of bytes as a PNG file."""
    height, width, _ = image.shape
    lines = b"".join(b"\0" + row.tobytes() for row in image)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + word + data + struct.pack(">I", zlib.crc32(word + data))
        for word, data in parts.items()
    )
