"""Findings as tables, and named arrays: one row each, with its shape, its numbers and a small heat map.

    show(params)            a tree of parameters, gradients, a record
    run, gradients(run)     show themselves, and so do lens(run), attribute(run, …) and other findings
    lens(run).result()      what they show: the `Result` that notebooks, the command line and programs read

A heat map is red where numbers are positive, blue where they are negative, and lets the page through where they are
zero: it reads the same on a light page and on a dark one. Arrays larger than the map are averaged into its cells.
"""

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, Tree
from .format import cell_text, signed
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


class Map(NamedTuple):
    """Numbers in a cell of a table: a heat map in notebooks, a column for each name on the command line.

    largest   has the full color; the largest of the numbers unless given
    cells     rows and columns at most; `size`, the dots that each is wide
    names     of the numbers (N,); without them, texts leave the cell out
    """

    numbers: Array
    largest: float | None = None
    cells: tuple[int, int] = (64, 64)
    size: int = 10
    names: Sequence[str] | None = None


class Passage(NamedTuple):
    """A text whose parts have a signed number each: colored text in notebooks and terminals, above the table."""

    label: str
    parts: Sequence[tuple[str, float]]

    def shares(self) -> list[tuple[str, float]]:
        """Return each part with its number as a share of the largest one, from -1 to 1."""
        largest = max((abs(value) for _, value in self.parts), default=0.0) or 1.0
        return [(text, value / largest) for text, value in self.parts]


class Bars(NamedTuple):
    """Signed numbers for a figure: the first `top` as bars, with a name each; `unit` stands below."""

    names: Sequence[str]
    values: Sequence[float]
    unit: str
    top: int = 20


@dataclass(frozen=True, repr=False)
class Result:
    """A table that notebooks, the command line and programs read.

    columns   their names; ">" begins those of numbers, which are set to the right
    rows      of each the cells: words, numbers, None, or a `Map`
    notes     lines below the table
    records   the same for programs; `facts`, what holds for all of them
    figure    what `plots.draw` draws: `Bars`, or a finding that has a drawing of its own
    passages  colored texts that stand above the table
    unfinished   how much was measured before Ctrl-C ended it; "" if all was
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    records: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    figure: Any = None
    unfinished: str = ""
    passages: Sequence[Passage] = ()

    def __repr__(self) -> str:
        columns, rows = self.texts(expand=False)
        lines = [*([[name.removeprefix(">") for name in columns]] if columns else []), *rows[:ROWS]]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        table = ("  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)).rstrip() for line in lines)
        return "\n".join([*([self.title] if self.title else []), *table, *_left_out(len(rows)), *self._notes])

    def _repr_html_(self) -> str:
        style = f'style="{_STYLE[1]}"'
        head = "".join(f"<th {style}>{escape(name.removeprefix('>'))}</th>" for name in self.columns)
        cells = ("".join(f"<td {style}>{_cell(cell)}</td>" for cell in row) for row in self.rows[:ROWS])
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        lines = "".join(f"<div>{escape(line)}</div>" for line in [*_left_out(len(self.rows)), *self._notes])
        table = f'<table style="{_STYLE[0]}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        return f"<div><b>{escape(self.title)}</b>{''.join(map(_passage, self.passages))}{table}{lines}</div>"

    @property
    def _notes(self) -> list[str]:
        return [*self.notes, *filter(None, [self.unfinished])]

    def texts(self, *, expand: bool = True) -> tuple[list[str], list[list[str]]]:
        """Return columns and rows as texts; if `expand`, the numbers of a map with names as a column each."""
        maps = {n: cell for row in self.rows for n, cell in enumerate(row) if isinstance(cell, Map)}
        names = {n: cell.names or () if expand else () for n, cell in maps.items()}
        columns, rows = [], []
        for n, column in enumerate(self.columns):
            columns += [f">{name}" for name in names[n]] if n in maps else [column]
        for row in self.rows:
            cells = []
            for n, cell in enumerate(row):
                if n not in maps:
                    cells.append(cell_text(cell))
                elif names[n]:
                    cells += _numbers_of(cell)
            rows.append(cells)
        return columns, rows


def _numbers_of(cell: Map) -> list[str]:
    return ["" if np.isnan(x) else signed(x, 2).removeprefix("+") for x in np.asarray(cell.numbers).tolist()]


def unfinished(measured: int, total: int) -> str:
    """Return how much of a sweep was measured, if Ctrl-C ended it."""
    return "" if measured == total else f"interrupted: {measured:,} of {total:,} are measured"


class Tabled:
    """A finding that shows itself by its `result`, in notebooks and as text."""

    def result(self) -> Result:
        """Return the finding as a table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.result())

    def _repr_html_(self) -> str:
        return self.result()._repr_html_()


class Table(Tabled, list[Any]):
    """A list of named tuples or dataclasses that shows itself as a table."""

    def result(self) -> Result:
        """Return the fields as columns, and a row for each member."""
        records = [row._asdict() if hasattr(row, "_asdict") else dict(vars(row)) for row in self]
        return Result("", list(records[0]) if records else [], [list(row.values()) for row in records], records=records)

    def __repr__(self) -> str:
        return super().__repr__() if self else "[]"


class Tables(dict[str, Any]):
    """Results by name that show themselves one below the other."""

    def _repr_html_(self) -> str:
        return "".join(f"<div><b>{escape(name)}</b>{one._repr_html_()}</div>" for name, one in self.items())


def show(tree: Tree, title: str = "") -> Result:
    """Return what shows the arrays of a tree, of a mapping from names to arrays, or of a single one."""
    arrays = dict(tree) if isinstance(tree, Mapping) and not isinstance(tree, dict) else flatten(tree)
    return _arrays(title or f"{len(arrays)} arrays", arrays)


def html_of(title: str, named: Mapping[str, Any]) -> str:
    """Return a table of named arrays, with nothing in it that would have to be fetched."""
    return _arrays(title, named)._repr_html_()


def _arrays(title: str, named: Mapping[str, Any]) -> Result:
    rows = [(name, _shape(x), _numbers(x), _picture(x)) for name, x in islice(named.items(), ROWS)]
    return Result(title, (), rows, _left_out(len(named)))


def _cell(cell: Any) -> str:
    if not isinstance(cell, Map):
        return escape(cell_text(cell))
    grid = cells_of(np.asarray(cell.numbers, dtype=np.float64), cell.cells)
    source = base64.b64encode(png_of(colored(grid, cell.largest))).decode()
    height, width = (cell.size * count for count in grid.shape)
    style = f"width:{width}px;height:{height}px;image-rendering:pixelated"
    return f'<img alt="heat map" style="{style}" src="data:image/png;base64,{source}">'


def _passage(passage: Passage) -> str:
    spans = []
    for text, share in passage.shares():
        color = ",".join(map(str, POSITIVE if share >= 0 else NEGATIVE))
        spans.append(f'<span style="background:rgba({color},{abs(share) * 0.6:.2f})">{escape(text)}</span>')
    return f'<div style="white-space:pre-wrap">{escape(passage.label)}: {"".join(spans)}</div>'


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
