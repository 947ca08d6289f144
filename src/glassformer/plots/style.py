"""The style of all figures, in light and dark colors, and their files."""

import functools
import io
import math
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.files import write_new
from ..core.reporting import during
from ..core.settings import check_known
from .labels import font_families

FORMATS = ("png", "svg", "pdf")
LETTER = 0.62
"""The width of a letter, about, as a share of its height."""

Drawing = TypeVar("Drawing", bound=Callable[..., Any])


class Theme(NamedTuple):
    """The colors of a style file.

    page          behind everything
    ink, quiet    of text, and of secondary text
    edge, grid    of lines
    never         of cells that a mask forbids
    """

    name: str
    page: str
    ink: str
    quiet: str
    edge: str
    grid: str
    never: str
    blue: str
    vermilion: str
    green: str
    purple: str
    orange: str
    sky: str  # a paler blue
    brown: str
    gray: str

    @property
    def series(self) -> tuple[str, ...]:
        """The colors of curves, in their order."""
        return self[7:]


def _settings(name: str) -> dict[str, Any]:
    return dict(mpl.rc_params_from_file(Path(__file__).parent / f"{name}.mplstyle", use_default_template=False))


def _theme(name: str, settings: dict[str, Any]) -> Theme:
    names = ("figure.facecolor", "text.color", "xtick.color", "axes.edgecolor", "grid.color", "hatch.color")
    return Theme(name, *(settings[key] for key in names), *settings["axes.prop_cycle"].by_key()["color"])


SETTINGS = {"light": _settings("light"), "dark": _settings("light") | _settings("dark")}
"""The settings of matplotlib that figures are drawn with, by theme."""
THEMES = {name: _theme(name, settings) for name, settings in SETTINGS.items()}

_CURRENT: ContextVar[Theme] = ContextVar("theme", default=THEMES["light"])


def colors() -> Theme:
    """Return the theme that figures are drawn in now."""
    return _CURRENT.get()


def themed(name: str) -> AbstractContextManager[None]:
    """Draw the figures that are made inside in a theme, "light" or "dark".

    with themed("dark"):
        figure = loss_curve(metrics)
    """
    check_known("there is no theme", name, THEMES)
    return during(_CURRENT, THEMES[name])


def styled(draw: Drawing) -> Drawing:
    """Make a function draw in the common style, and leave the caller's settings of matplotlib as they are."""

    @functools.wraps(draw)
    def drawn(*args: Any, **settings: Any) -> Any:
        with mpl.rc_context(SETTINGS[colors().name] | {"font.family": list(font_families())}):
            return draw(*args, **settings)

    return drawn  # type: ignore[return-value]


def weight_colors() -> Colormap:
    """Return the colors of weights: the page's color for 0, gray for forbidden cells."""
    theme = colors()
    name, start, end = ("magma_r", 0, 0.88) if theme.name == "light" else ("magma", 0.22, 1)
    ramp = mpl.colormaps[name](np.linspace(start, end, 256))
    # The ramp starts near the color of the page; its first steps fade in from that color.
    fade = np.linspace(1, 0, 24)[:, None]
    ramp[:24, :3] = fade * np.array(to_rgb(theme.page)) + (1 - fade) * ramp[:24, :3]
    return ListedColormap(ramp, name=f"weights-{theme.name}").with_extremes(bad=theme.never)


def signed_colors() -> Colormap:
    """Return the colors of signed numbers: blue for negative, the page's color for 0, red for positive."""
    if colors().name == "light":
        return mpl.colormaps["RdBu_r"]
    ramp = ["#b5e0fb", "#4da3dd", "#24567c", colors().page, "#8a3f2c", "#ec7a55", "#ffd3c2"]
    return LinearSegmentedColormap.from_list("signed-dark", ramp)


class NotebookFigure(Figure):
    """A figure that notebooks show without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        FigureCanvasAgg(self).print_png(buffer)
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches that arranges its own margins."""
    return NotebookFigure(figsize=(width, height))


def panels(figure: Figure, count: int, columns: int) -> list[Axes]:
    """Return `count` axes in rows of `columns`."""
    grid = figure.subplots(math.ceil(count / columns), columns, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.remove()
    return list(grid[:count])


def row(count: int, width: float, height: float, *, columns: int | None = None) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of a size in inches side by side."""
    columns = columns or count
    figure = new_figure(width * columns, height * math.ceil(count / columns))
    return figure, panels(figure, count, columns)


def titled(figure: Figure, title: str, words: str) -> Figure:
    """Give a figure its title, and the description that `save` writes into its file."""
    figure.suptitle(textwrap.fill(title, max(20, int(8 * figure.get_figwidth()))))
    figure.set_label(f"{title}: {words}".replace(r"\$", "$"))
    for ax in figure.axes:
        # Ticks are made when they are first drawn, perhaps under another theme.
        ax.tick_params(which="both", color=colors().quiet, labelcolor=colors().ink)
    return figure


# --- axes ------------------------------------------------------------------------------------------------------------


def band(ax: Axes, x: Any, curves: Any, color: str, label: str = "") -> None:
    """Draw the mean of some curves (N, len(x)), and the range that they span."""
    curves = np.asarray(curves, dtype=np.float64)
    ax.plot(x, curves.mean(axis=0), color=color, label=label)
    ax.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.2, lw=0)


def interval(ax: Axes, x: float, y: float, low: float, high: float, color: str, label: str | None = None) -> None:
    """Draw a mean x at a height y as a point, with a bar from the lowest value to the highest."""
    ax.errorbar(x, y, xerr=[[x - low], [high - x]], fmt="o", color=color, capsize=3, label=label)


def bare(ax: Axes, xlabel: str = "", ylabel: str = "") -> None:
    """Remove the spines and tick marks of a map or a chart of bars, and name its axes."""
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_xlabel(xlabel, color=colors().quiet)
    ax.set_ylabel(ylabel, color=colors().quiet)


def token_ticks(axis: Any, labels: Sequence[str], *, room: float) -> None:
    """Write labels at 0, 1, … along an axis of `room` inches, words upright where one of them is too wide to lie.

    Where even lines of small type do not fit, every second, third, … label is written.
    """
    space = room * 72 / max(len(labels), 1)
    size = float(np.clip(0.72 * space, 5.5, 8.5))
    step = max(1, math.ceil(1.2 * size / space))
    axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=size)
    axis.set_tick_params(length=0 if step == 1 else 2.5, pad=2)
    widest = LETTER * size * max(map(len, labels[::step]), default=0)
    crowded = axis.axis_name == "x" and widest > 0.9 * space * step
    for text, label in zip(axis.get_ticklabels(), labels[::step], strict=False):
        text.set_rotation(90 if crowded and len(label) > 1 else 0)


def whole_ticks(*axes: Any) -> None:
    """Make an axis mark whole numbers only."""
    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def are_far_apart(values: Array) -> bool:
    """Return whether positive values call for a logarithmic scale, on which the largest does not flatten the others."""
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values) or values.min() <= 0:
        return False
    return bool(values.max() > min(30 * values.min(), 10 * np.median(values)))


def log_scale(ax: Axes) -> None:
    """Give the vertical axis a logarithmic scale with plain numbers, as many as there is room for."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    is_roomy = 3 * math.log10(high / low) < 7 * ax.get_window_extent().height / ax.figure.dpi
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_roomy else (1.0,), numticks=8))
    ax.yaxis.set_minor_locator(NullLocator())
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}" if 1e4 <= value < 1e7 else f"{value:,.4g}")
    ax.yaxis.set_major_formatter(plain)


# --- files -----------------------------------------------------------------------------------------------------------


@styled
def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure, with its description inside, as a PNG, SVG or PDF file, by the end of its name."""
    if not isinstance(figure, Figure):
        raise ConfigError(f"{figure!r:.80} is no figure", hint="pass what gf.plots draws, such as model.plot()")
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        hint = f"use {', '.join('.' + name for name in FORMATS)}"
        raise ConfigError(f"{path} does not end in the name of a format", hint=hint)
    buffer = io.BytesIO()
    words = str(figure.get_label())
    about: dict[str, Any] = {"Title": words.split(":")[0], "Subject" if ending == "pdf" else "Description": words}
    if ending == "png":
        # `savefig` would draw everything twice, once only to arrange it, which drawing does anyway.
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": "Glassformer", **about})
    else:
        dated = "CreationDate" if ending == "pdf" else "Date"
        figure.savefig(buffer, format=ending, metadata={"Creator": "Glassformer", dated: None, **about})
    return write_new(path, buffer.getvalue())


def save_themes(
    draw: Callable[[], Figure], folder: str | Path, name: str, *, form: str = "png", theme: str | None = None
) -> list[Path]:
    """Save what `draw()` draws as NAME.png for light pages and NAME-dark.png for dark ones, or in another format.

    theme   light or dark: draw this one alone, as NAME.png
    """
    check_known("there is no format", form, FORMATS)
    paths = []
    for one in THEMES if theme is None else [theme]:
        with themed(one):
            dark = "-dark" if theme is None and one == "dark" else ""
            paths.append(_saved(draw, Path(folder) / f"{name}{dark}.{form}"))
    return paths


def _saved(draw: Callable[[], Figure], path: Path) -> Path:
    return save(draw(), path)
