"""The figure of a result."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..core.errors import ConfigError
from ..core.show import Bars, Result, Tabled
from ..interpret import HeadScores, Lens, Patching, Paths
from .heads import head_specialization, patching_map, path_map
from .predictions import lens_map, signed_bars

DRAWINGS: dict[type, Any] = {
    Lens: lens_map,
    Patching: patching_map,
    Paths: path_map,
    HeadScores: head_specialization,
}


def draw(found: Tabled | Result, *, title: str | None = None) -> Figure:
    """Draw what a method found, such as `attribute(run, …)` or `lens(run)`, with its own title unless one is given."""
    result = found if isinstance(found, Result) else found.result()
    shown, title = result.figure, result.title if title is None else title
    if isinstance(shown, Bars):
        return signed_bars(shown.names, np.asarray(shown.values), top=shown.top, title=title, unit=shown.unit)
    for kind, drawing in DRAWINGS.items():
        if isinstance(shown, kind):
            figure: Figure = drawing(shown, title=title)
            return figure
    raise ConfigError(f"{result.title!r} has no figure", hint="show it as a table: print(…)")
