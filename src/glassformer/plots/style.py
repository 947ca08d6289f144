"""How all figures look, and how they become files."""

import functools
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ..files import write_new
from .labels import font_families, plain

DPI = 160

# Okabe and Ito's colors: told apart with every kind of color vision.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, QUIET, FAINT = "#1f2430", "#667085", "#d8dce3"

NEVER = "#e6e8ec"
"""The color of what a mask forbids, unlike any color of a weight."""

_RC = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#98a2b3",
    "axes.facecolor": "white",
    "axes.grid": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "figure.facecolor": "white",
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "font.size": 9.5,
    "grid.color": "#e4e7ec",
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "text.usetex": False,
    "xtick.color": "#667085",
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.color": "#667085",
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8.5,
}

Drawing = TypeVar("Drawing", bound=Callable[..., Any])


def styled(draw: Drawing) -> Drawing:
    """Let a function draw in the common style; the caller's own settings of matplotlib stay as they are."""

    @functools.wraps(draw)
    def drawn(*args: Any, **settings: Any) -> Any:
        with mpl.rc_context({**_RC, "font.family": list(font_families())}):
            return draw(*args, **settings)

    return drawn  # type: ignore[return-value]


@functools.cache
def weight_colors() -> Colormap:
    """From white for nothing to dark for everything, in steps that look equal; forbidden cells are gray."""
    ramp = mpl.colormaps["magma_r"](np.linspace(0, 0.88, 256))
    # The ramp starts at a pale cream; let its first steps fade in from white.
    fade = np.linspace(1, 0, 24)[:, None]
    ramp[:24, :3] = fade + (1 - fade) * ramp[:24, :3]
    return ListedColormap(ramp, name="weights").with_extremes(bad=NEVER)


def ink_on(color: Sequence[float]) -> str:
    """Return the text color that reads best on a background: dark on light, white on dark."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return INK if (luminance + 0.05) / 0.068 > 1.05 / (luminance + 0.05) else "white"


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


def token_ticks(axis: Any, labels: Sequence[str], *, room: float) -> None:
    """Write labels at 0, 1, … along an axis of `room` inches.

    Under a horizontal axis, a label wider than its place stands upright. Where even lines of small type do not fit,
    only every second, third, … label is written.
    """
    place = room * 72 / max(len(labels), 1)
    size = float(np.clip(0.72 * place, 5.5, 8.5))
    widths = [0.64 * size * len(label) for label in labels] if axis.axis_name == "x" else []
    upright = [width > max(0.95 * place, 1.4 * size) for width in widths]
    extent = 1.15 * size if any(upright) or not widths else max(widths)
    step = max(1, math.ceil(extent / place))
    axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=size)
    axis.set_tick_params(length=0 if step == 1 else 2.5, pad=2)
    for text, turn in zip(axis.get_ticklabels(), upright[::step], strict=False):
        text.set_rotation(90 if turn else 0)


def titled(figure: Figure, title: str, words: str) -> Figure:
    """Give a figure its title, and the words for those who cannot see it; `save` stores them, a report uses them."""
    figure.suptitle(title)
    figure.set_label(plain(f"{title}: {words}"))
    return figure


def color_bar(figure: Figure, axes: Any, image: Any, label: str = "", **settings: Any) -> None:
    """Show what the colors of an image mean."""
    bar = figure.colorbar(image, ax=axes, **{"aspect": 28, "pad": 0.02, **settings})
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.set_label(label, fontsize=8.5, color=QUIET)


def write_cell(axes: Axes, place: tuple[int, int], text: str, *, size: float, background: Sequence[float]) -> None:
    """Write into the middle of a cell (column, row), in the ink that reads best on its color."""
    axes.text(*place, text, ha="center", va="center", fontsize=size, color=ink_on(background))


@styled
def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as a PNG file, whole or not at all, with its description inside."""
    buffer = io.BytesIO()
    words = str(figure.get_label())
    metadata = {"Software": "Glassformer", "Title": words.split(":")[0], "Description": words}
    # `savefig` would draw everything twice, once only to arrange it, which drawing does anyway.
    FigureCanvasAgg(figure).print_png(buffer, metadata=metadata)
    return write_new(path, buffer.getvalue())
