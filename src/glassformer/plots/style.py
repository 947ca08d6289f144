"""How all figures look, and how they become files."""

import functools
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ..errors import ConfigError
from ..files import write_new
from .labels import font_families, plain, text_width
from .theme import Theme, colors, ink_on
from .ticks import round_numbers

DPI = 160

FORMATS = ("png", "svg", "pdf")
"""What figures are written as: dots for pages, lines for slides and print."""

BAR_LENGTH, BAR_WIDTH = 2.4, 0.11
"""The most inches of a bar that explains colors, however large its figure is."""

Drawing = TypeVar("Drawing", bound=Callable[..., Any])


def styled(draw: Drawing) -> Drawing:
    """Let a function draw in the common style; the caller's own settings of matplotlib stay as they are."""

    @functools.wraps(draw)
    def drawn(*args: Any, **settings: Any) -> Any:
        with mpl.rc_context(_rc(colors())):
            return draw(*args, **settings)

    return drawn  # type: ignore[return-value]


def _rc(theme: Theme) -> dict[str, Any]:
    """Return the settings of matplotlib that figures are drawn with."""
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": theme.edge,
        "axes.facecolor": theme.page,
        "axes.grid": False,
        "axes.labelcolor": theme.ink,
        "axes.labelsize": 9.5,
        "axes.linewidth": 0.8,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": theme.ink,
        "axes.titlesize": 10.5,
        "axes.unicode_minus": True,
        "figure.facecolor": theme.page,
        "figure.titlesize": 13,
        "figure.titleweight": "bold",
        "font.family": list(font_families()),
        "font.size": 9.5,
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "pdf.fonttype": 42,  # letters stay letters, which can be searched
        "svg.fonttype": "path",  # shapes, since the reader may not have the font
        "svg.hashsalt": "glassformer",
        "text.color": theme.ink,
        "text.usetex": False,
        **{f"{axis}tick.{part}": color for axis in "xy" for part, color in _tick_colors(theme).items()},
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
    }


def _tick_colors(theme: Theme) -> dict[str, Any]:
    return {"color": theme.quiet, "labelcolor": theme.ink}


class NotebookFigure(Figure):
    """A figure that notebooks show as it is, without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        FigureCanvasAgg(self).print_png(buffer)
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches that arranges its own margins."""
    return NotebookFigure(figsize=(width, height), dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.09))


def panels(figure: Figure, count: int, columns: int) -> list[Axes]:
    """Return `count` axes in rows of `columns`; places left over stay empty."""
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.remove()
    return list(grid[:count])


BOLD = 1.2
"""How much wider letters of titles are than others, with what stays free beside them."""


def titled(figure: Figure, title: str, words: str) -> Figure:
    """Give a figure its title, and the words for those who cannot see it; `save` stores them, a report uses them."""
    written = figure.suptitle(title)
    size = float(written.get_fontsize())
    room = figure.get_figwidth() * 72 / max(BOLD * text_width(title, size), 1.0)
    written.set_fontsize(size * min(1.0, room))  # a long one in smaller letters, rather than cut
    figure.set_label(plain(f"{title}: {words}"))
    for ax in figure.axes:
        # Ticks are made when they are first drawn, perhaps in another theme than the figure's.
        ax.tick_params(which="both", **_tick_colors(colors()))
    return figure


def color_bar(figure: Figure, axes: Any, image: Any, label: str = "", **settings: Any) -> None:
    """Show what the colors of an image mean, by a bar that stays short beside a tall figure."""
    length = min(BAR_LENGTH, 0.8 * figure.get_figheight())
    # A bar is as long as its share of the axes beside it, which are about an inch lower than the figure.
    shrink = min(1.0, length / max(figure.get_figheight() - 1.0, 0.5))
    shape: dict[str, Any] = {"shrink": shrink, "aspect": length / BAR_WIDTH, "pad": 0.02}
    bar = figure.colorbar(image, ax=axes, ticks=round_numbers(5), **shape, **settings)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    # The words are centered on the bar, which stands below a title.
    if text_width(label, 8.5) > 72 * (figure.get_figheight() - 0.9):
        label = label.replace(", ", ",\n").replace(" (", "\n(")
    bar.set_label(label, fontsize=8.5, color=colors().quiet)


def write_cell(axes: Axes, place: tuple[int, int], text: str, *, size: float, background: Sequence[float]) -> None:
    """Write into the middle of a cell (column, row), in the ink that reads best on its color."""
    # It never leaves its cell, so the layout need not measure it, which takes longer than to draw it.
    axes.text(*place, text, ha="center", va="center", fontsize=size, color=ink_on(background), in_layout=False)


@styled
def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as a PNG, SVG or PDF file, by the end of its name, whole or not at all.

    Its description stands inside.
    """
    if not isinstance(figure, Figure):
        raise ConfigError(f"{figure!r:.80} is no figure", hint="pass what gf.plots draws, such as model.plot()")
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise ConfigError(
            f"{path} does not end in the name of a format", hint=f"use {', '.join('.' + name for name in FORMATS)}"
        )
    buffer = io.BytesIO()
    words = str(figure.get_label())
    title = words.split(":")[0]
    if ending == "png":
        metadata: dict[str, Any] = {"Software": "Glassformer", "Title": title, "Description": words}
        # `savefig` would draw everything twice, once only to arrange it, which drawing does anyway.
        FigureCanvasAgg(figure).print_png(buffer, metadata=metadata)
    elif ending == "svg":
        figure.savefig(buffer, format="svg", metadata={"Title": title, "Description": words, "Date": None})
    else:
        metadata = {"Title": title, "Subject": words, "Creator": "Glassformer", "CreationDate": None}
        figure.savefig(buffer, format="pdf", metadata=metadata)
    return write_new(path, buffer.getvalue())
