"""The colors of figures, for light pages and for dark ones."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, to_rgb

from ..errors import ConfigError, did_you_mean


class Theme(NamedTuple):
    """One set of colors; those of series are near to Okabe and Ito's, which every kind of color vision can tell apart.

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
    sky: str  # a paler blue
    orange: str
    green: str
    vermilion: str
    purple: str
    gray: str
    brown: str

    @property
    def series(self) -> tuple[str, ...]:
        """The colors of curves, in their order."""
        return (self.blue, self.vermilion, self.green, self.purple, self.orange, self.sky, self.brown, self.gray)


LIGHT = Theme(
    "light", page="#ffffff", ink="#1f2430", quiet="#5d6778", edge="#98a2b3", grid="#e4e7ec", never="#e6e8ec",
    blue="#0072b2", sky="#3f9bd2", orange="#c47d00", green="#009e73", vermilion="#d55e00", purple="#bd6295",
    gray="#8a94a6", brown="#8a5a00",
)  # fmt: skip
DARK = Theme(
    "dark", page="#1d222b", ink="#e8ebf0", quiet="#a3adbd", edge="#5c6675", grid="#303845", never="#3b4351",
    blue="#6cc0f0", sky="#3f83ad", orange="#f0b23c", green="#2dbd92", vermilion="#f58a4b", purple="#d99bbf",
    gray="#8792a5", brown="#b58a4a",
)  # fmt: skip
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}

_CURRENT: ContextVar[Theme] = ContextVar("theme", default=LIGHT)


def colors() -> Theme:
    """Return the theme that figures are drawn in now."""
    return _CURRENT.get()


@contextlib.contextmanager
def themed(name: str) -> Iterator[None]:
    """Draw the figures that are made inside in a theme, "light" or "dark".

    with themed("dark"):
        figure = loss_curve(metrics)
    """
    if name not in THEMES:
        raise ConfigError(f"there is no theme {name!r}", hint=did_you_mean(name, THEMES))
    token = _CURRENT.set(THEMES[name])
    try:
        yield
    finally:
        _CURRENT.reset(token)


@functools.cache
def _weights(theme: Theme) -> Colormap:
    name, start, end = ("magma_r", 0, 0.88) if theme is LIGHT else ("magma", 0.22, 1)
    ramp = mpl.colormaps[name](np.linspace(start, end, 256))
    # The ramp starts near the color of the page; its first steps fade in from that color.
    fade = np.linspace(1, 0, 24)[:, None]
    ramp[:24, :3] = fade * np.array(to_rgb(theme.page)) + (1 - fade) * ramp[:24, :3]
    return ListedColormap(ramp, name=f"weights-{theme.name}").with_extremes(bad=theme.never)


def weight_colors() -> Colormap:
    """Return the colors of weights: the page's color for 0, gray for forbidden cells."""
    return _weights(colors())


def signed_colors() -> Colormap:
    """Return the colors of signed numbers: blue for negative, the page's color for 0, red for positive."""
    if colors() is LIGHT:
        return mpl.colormaps["RdBu_r"]
    ramp = ["#b5e0fb", "#4da3dd", "#24567c", DARK.page, "#8a3f2c", "#ec7a55", "#ffd3c2"]
    return LinearSegmentedColormap.from_list("signed-dark", ramp)


def ink_on(color: Sequence[float]) -> str:
    """Return the text color with the higher contrast on a background, as WCAG defines contrast."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return LIGHT.ink if luminance > 0.217 else "white"
