"""One page that shows a folder of figures: a title, tables, pictures, and words that say what to look at.

It is light or dark as its reader likes pages to be; pictures that were drawn in both themes follow.
"""

import base64
import math
import re
import struct
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from matplotlib.figure import Figure

from ..errors import DataError
from ..files import write_new
from .page import clean, page_html, page_style, paragraphs, plain_text
from .style import DPI, save

INDEX = "index.html"
LONG = 24
"""Characters of a cell that stay on one line."""
DECIMALS = 5
"""Numbers of a table have so many decimals at most."""


class Table(NamedTuple):
    """Rows under headings; columns of numbers are set flush right, and so are those whose heading starts with ">"."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


class Picture(NamedTuple):
    """A PNG file in the folder of the report, what to look at in it, and words for those who cannot see it.

    dark     the same for readers of dark pages, where there is one
    copies   the same in other formats, to be linked
    """

    path: str | Path
    caption: str
    alt: str
    dark: str | Path | None = None
    copies: Sequence[str | Path] = ()


class Sketch(NamedTuple):
    """A picture that is still to be drawn, once for each theme: see `draw_sections`."""

    name: str
    draw: Callable[[], Figure]
    caption: str = ""


def saved_picture(folder: Path, name: str, figure: Figure, caption: str) -> Picture:
    """Save a figure into the folder of the report, and return it as a picture there."""
    path = save(figure, folder / f"{name}.png")
    return Picture(path.name, caption, str(figure.get_label()))


class Fold(NamedTuple):
    """A part that is folded away behind one line until asked for."""

    line: str
    pictures: Sequence[Picture | Sketch] = ()
    tables: Sequence[Table] = ()
    is_open: bool = False


class Section(NamedTuple):
    """A part of the report: a heading, paragraphs, samples, tables, pictures, parts that are folded away.

    samples   texts that are shown as they are, line by line
    """

    heading: str
    text: str = ""
    pictures: Sequence[Picture | Sketch] = ()
    tables: Sequence[Table] = ()
    folds: Sequence[Fold] = ()
    samples: Sequence[str] = ()


def write_report(
    folder: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    intro: str = "",
    summary: Sequence[tuple[str, Any]] = (),
    embed: bool = False,
    theme: str | None = None,
) -> Path:
    """Write `index.html` for the pictures in `folder`, and return where it is.

    intro     a paragraph under the title
    summary   names and values shown as tiles at the top
    embed     put the pictures into the page, so that the one file can be sent around
    theme     light or dark; None: as the reader likes pages to be

    All words are plain text: nothing in them is taken for HTML. An empty line begins a new paragraph.
    """
    folder = Path(folder)
    anchored = _anchored(sections)
    place = _Place(folder, embed, theme)
    body = [_section(place, section, anchor) for anchor, section in anchored.items()]
    links = "".join(f'<a href="#{anchor}">{plain_text(section.heading)}</a>' for anchor, section in anchored.items())
    contents = f'<nav aria-label="Contents">{links}</nav>' if len(sections) > 1 else ""
    header = f"{paragraphs(intro, 'intro')}\n{_tiles(summary)}"
    main = "\n".join([contents, "<main>", *body, "</main>"])
    page = page_html(title, header, main, style=page_style(theme))
    return write_new(folder / INDEX, page.encode("utf-8"))


class _Place(NamedTuple):
    """Where a page lies, whether it holds its pictures, and its theme."""

    folder: Path
    embed: bool
    theme: str | None


def _section(place: _Place, section: Section, anchor: str) -> str:
    parts = [f'<section id="{anchor}">', f"<h2>{plain_text(section.heading)}</h2>", paragraphs(section.text)]
    parts += [f'<pre class="sample">{plain_text(sample)}</pre>' for sample in section.samples]
    parts += _contents(place, section.pictures, section.tables)
    for fold in section.folds:
        inner = "\n".join(_contents(place, fold.pictures, fold.tables))
        state = " open" if fold.is_open else ""
        parts.append(f"<details{state}><summary>{plain_text(fold.line)}</summary>\n{inner}\n</details>")
    return "\n".join(part for part in [*parts, "</section>"] if part)


def _contents(place: _Place, pictures: Sequence[Picture | Sketch], tables: Sequence[Table]) -> list[str]:
    return [*(_table(table) for table in tables), *(_picture(place, picture) for picture in pictures)]


def _picture(place: _Place, picture: Picture | Sketch) -> str:
    """Show a picture; of two themes, the page shows one, which opens its own file."""
    if isinstance(picture, Sketch):
        raise DataError(f"the picture {picture.name!r} is not drawn yet", hint="pass what draw_sections(…) returns")
    kind = ' class="paper"' if picture.dark is None else ""
    shown = {"light": picture.path, "dark": picture.dark}
    if picture.dark is None or place.theme is not None:
        shown = {"": shown[place.theme or "light"] or picture.path}
    alt = picture.alt or picture.caption
    images = "".join(_image(place, path, alt, theme) for theme, path in shown.items() if path is not None)
    links = [f'<a href="{_address(copy)}">{plain_text(Path(copy).name)}</a>' for copy in picture.copies]
    words = " ".join(part for part in (plain_text(picture.caption), *links) if part)
    caption = f"<figcaption>{words}</figcaption>" if words else ""
    return f"<figure{kind}>{images}{caption}</figure>"


def _image(place: _Place, path: str | Path, alt: str, theme: str) -> str:
    """Show one file, which opens when it is clicked; what lies in the page itself has nothing to open."""
    width, height = _size(place.folder / path)
    # Figures are drawn for screens with several dots per CSS pixel.
    shape = f'width="{round(width * 96 / DPI)}" height="{round(height * 96 / DPI)}"'
    words = escape(clean(alt), quote=True)
    if place.embed:
        link, source = "", "data:image/png;base64," + base64.b64encode((place.folder / path).read_bytes()).decode()
    else:
        source = _address(path)
        link = f' href="{source}"'
    mark = f' class="{theme}"' if theme else ""
    return f'<a{mark}{link}><img src="{source}" alt="{words}" {shape} loading="lazy"></a>'


def _address(path: str | Path) -> str:
    """Return where a browser finds a file that lies beside the page."""
    return escape(quote(Path(path).as_posix()), quote=True)


def _size(path: Path) -> tuple[int, int]:
    """Return the width and height that a PNG file states in its first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(24)
    except OSError:
        raise DataError(f"the report shows {path}, which cannot be read", hint="save the figure first") from None
    if len(head) < 24 or not head.startswith(b"\x89PNG\r\n\x1a\n"):
        raise DataError(f"{path} is not a PNG file", hint="write figures with save(figure, path)")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def _table(table: Table) -> str:
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    marks = [
        ' class="number"' if name.startswith(">") or _are_numbers(column) else ""
        for name, column in zip(table.columns, columns, strict=True)
    ]

    def cell(tag: str, mark: str, value: Any) -> str:
        text = plain_text(value)
        # What is long is broken, so that it can be read on a narrow screen.
        mark = ' class="long"' if not mark and len(text) > LONG else mark
        return f"<{tag}{mark}>{text}</{tag.split()[0]}>"

    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(cell(tag, mark, value) for mark, value in zip(marks, values, strict=True))

    caption = f"<caption><span>{plain_text(table.caption)}</span></caption>" if table.caption else ""
    written = zip(*map(_written, columns), strict=True)
    rows = "".join(f"<tr>{cells('td', row)}</tr>" for row in written)
    names = [name.removeprefix(">") for name in table.columns]
    head = cells('th scope="col"', names)
    # What scrolls must be reached by the keyboard too, and have a name there.
    name = escape(clean(table.caption or f"Table: {', '.join(names)}"), quote=True)
    inner = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">{inner}</div>'


def _are_numbers(column: Sequence[Any]) -> bool:
    return bool(column) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)


def _written(column: Sequence[Any]) -> Sequence[Any]:
    """Give the numbers of a column as many decimals as the smallest of them needs, so that they stand below each other.

    That is three digits of the largest, and two of the smallest that is not negligible beside it.
    """
    sizes = [abs(value) for value in column if isinstance(value, float) and math.isfinite(value) and value]
    if not _are_numbers(column) or not sizes:
        return column
    smallest = min(size for size in sizes if size > max(sizes) / 1e4)
    first, last = (math.floor(math.log10(size)) for size in (max(sizes), smallest))
    if first < -3 or first > 6:
        return column
    places = min(max(2 - first, 1 - last, 0), DECIMALS)
    # + 0.0: nothing is negative nothing.
    return [f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−") for value in column]


def _tiles(summary: Sequence[tuple[str, Any]]) -> str:
    if not summary:
        return ""
    tiles = "".join(f"<div><dt>{plain_text(name)}</dt><dd>{plain_text(value)}</dd></div>" for name, value in summary)
    return f'<dl class="tiles">{tiles}</dl>'


def _anchored(sections: Sequence[Section]) -> dict[str, Section]:
    """Return the sections by an id for each, no two alike."""
    anchored: dict[str, Section] = {}
    for section in sections:
        base = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") or "section"
        number, anchor = 2, base
        while anchor in anchored:
            number, anchor = number + 1, f"{base}-{number}"
        anchored[anchor] = section
    return anchored
