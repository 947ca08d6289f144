"""What fills the memory of a device, as one bar per plan, with the limit as a line."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ..errors import ShapeError
from ..mesh.plan import Plan
from .style import new_figure, styled, titled
from .theme import colors

PARTS = {
    "parameters": ("parameters", "blue"),
    "optimizer": ("optimizer", "sky"),
    "average": ("moving average", "gray"),
    "gradients": ("gradients", "green"),
    "in_use": ("weights in use", "purple"),
    "activations": ("activations", "orange"),
    "workspace": ("workspace of a block", "brown"),
    "logits": ("logits", "ink"),
}
FITS = {None: "", True: ", which fits", False: ", which does not fit"}
CROP = 1.75
"""Where bars are cut off, as a multiple of the limit."""


@styled
def memory_bars(plans: Sequence[Plan], *, title: str = "Memory of each device") -> Figure:
    """Draw the memory that each plan takes on a device, kind by kind; bars far beyond the limit are cut off."""
    if not plans:
        raise ShapeError("there is no plan to draw", hint="give at least one")
    limits = [plan.device_memory for plan in plans if plan.device_memory is not None]
    limit = max(limits, default=None)
    totals = [plan.total for plan in plans]
    end = max(totals) * 1.18 if limit is None else min(max(totals) * 1.18, CROP * limit)
    figure = new_figure(9.2, 1.7 + 0.46 * len(plans))
    ax = figure.subplots()
    for row, plan in enumerate(plans):
        _bar(ax, row, plan, end)
    ax.set_yticks(range(len(plans)), [_label(plan) for plan in plans])
    ax.set_ylim(len(plans) - 0.45, -0.75)
    ax.set_xlim(0, end)
    ax.xaxis.set_major_formatter(EngFormatter("B"))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=True, axis="x")
    if limit is not None:
        ax.axvline(limit, color=colors().page, linewidth=4)  # a seam, so that the line stands out from every bar
        ax.axvline(limit, color=colors().vermilion, linewidth=1.6)
        ax.text(limit, -0.5, f" {_bytes(limit)}, one device", color=colors().vermilion, va="center", fontsize=9)
    handles, labels = ax.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    shown = [name for name, _ in PARTS.values() if name in named]  # each once, in the order of the bars
    figure.legend([named[name] for name in shown], shown, loc="outside lower center", ncols=4)
    words = [f"{_label(plan)} takes {_bytes(plan.total)}{FITS[plan.fits]}" for plan in plans]
    return titled(figure, title, f"{'; '.join(words)}.")


def _bar(ax: Axes, row: int, plan: Plan, end: float) -> None:
    start = 0.0
    for part, size in plan.memory.items():
        name, color = PARTS[part]
        ax.barh(row, size, left=start, height=0.62, color=getattr(colors(), color), label=name, linewidth=0)
        start += size
    words: dict[str, Any] = {"fontsize": 9, "color": colors().ink, "va": "center", "textcoords": "offset points"}
    if start > end:  # the bar is cut off: the words stand inside it
        box = {"facecolor": colors().page, "edgecolor": "none", "pad": 1.5}
        ax.annotate(f"{_bytes(plan.total)} →", (end, row), (-5, 0), ha="right", bbox=box, **words)
    else:
        ax.annotate(_bytes(plan.total), (start, row), (4, 0), ha="left", **words)


def _label(plan: Plan) -> str:
    split = ", ".join(f"{axis} {devices:,}" for axis, devices in plan.mesh.to_dict().items() if devices > 1)
    return (split or "one device") + (", remat" if plan.remat else "")


def _bytes(size: float) -> str:
    return str(EngFormatter("B")(float(f"{size:.3g}")))
