"""The colors of figures, for light pages and for dark ones."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, to_rgb

from ..errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Theme:
    """One set of colors.

    page           behind everything
    ink, quiet     of words, and of words that stand back; both read well on the page
    edge, grid     of lines
    never          of what a mask forbids, unlike any color of a weight
    blue … brown   of series: near to Okabe and Ito's, which are told apart with every kind of color vision, moved
                   until each stands out from the page
    sky            a blue that stands back behind the other
    """

    name: str
    page: str
    ink: str
    quiet: str
    edge: str
    grid: str
    never: str
    blue: str
    sky: str
    orange: str
    green: str
    vermilion: str
    purple: str
    gray: str
    brown: str


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

INK_ON_LIGHT, INK_ON_DARK = LIGHT.ink, "white"


def colors() -> Theme:
    """Return the colors that figures are drawn in now."""
    return _CURRENT.get()


@contextlib.contextmanager
def themed(name: str) -> Iterator[None]:
    """Draw the figures that are made inside in a theme, "light" or "dark"; outside, they are light.

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


def weight_colors() -> Colormap:
    """From the color of the page for nothing to its opposite for everything, in steps that look equal.

    Forbidden cells are gray.
    """
    return _weights(colors())


def signed_colors() -> Colormap:
    """Blue for negative, the color of the page for zero, red for positive."""
    return _signed(colors())


@functools.cache
def _weights(theme: Theme) -> Colormap:
    name, start, end = ("magma_r", 0, 0.88) if theme is LIGHT else ("magma", 0.22, 1)
    ramp = mpl.colormaps[name](np.linspace(start, end, 256))
    # The ramp starts near the color of the page, but not at it; let its first steps fade in.
    fade = np.linspace(1, 0, 24)[:, None]
    ramp[:24, :3] = fade * np.array(to_rgb(theme.page)) + (1 - fade) * ramp[:24, :3]
    return ListedColormap(ramp, name=f"weights-{theme.name}").with_extremes(bad=theme.never)


@functools.cache
def _signed(theme: Theme) -> Colormap:
    if theme is LIGHT:
        return mpl.colormaps["RdBu_r"]
    ramp = ["#b5e0fb", "#4da3dd", "#24567c", theme.page, "#8a3f2c", "#ec7a55", "#ffd3c2"]
    return LinearSegmentedColormap.from_list("signed-dark", ramp)


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the contrast of two colors (red, green, blue), from 1 to 21, as the rules for accessible pages have it.

    (L1 + 0.05) / (L2 + 0.05) for the relative luminances L1 ≥ L2
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(color: Sequence[float]) -> str:
    """Return the text color that reads best on a background: dark on light, white on dark."""
    on_light = contrast(to_rgb(INK_ON_LIGHT), color)
    return INK_ON_LIGHT if on_light > contrast(to_rgb(INK_ON_DARK), color) else INK_ON_DARK


def _luminance(color: Sequence[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
