"""GPT-3 on 1,024 devices of 80 GB: what each of them holds, and sends, for several meshes.

    python benchmarks/gpt3_plan.py                 a table, at once: nothing is allocated
    python benchmarks/gpt3_plan.py --json          one JSON object per mesh
    python benchmarks/gpt3_plan.py --figure FILE   also a picture, such as docs/images/gpt3_plan.png

A step reads 1,024 sequences of 2,048 tokens, as many microbatches as it takes for a device to see one at a time. The
vocabulary is padded from 50,257 to 50,304 ids, which 8 devices can share. `glassformer plan` prints one of the rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from glassformer.core.execution import MeshShape
from glassformer.engines.mesh.plan import Plan, plan
from glassformer.models import preset
from glassformer.plots import save
from glassformer.plots.style import colors, new_figure, styled, titled

BATCH = 1024
LIMIT = 80 * 1000**3
CASES = [
    ("data=1024", False),
    ("data=128,tensor=8", False),
    ("data=16,fsdp=8,tensor=8", False),
    ("data=16,fsdp=8,tensor=8", True),
    ("fsdp=1024", False),
    ("fsdp=1024", True),
    ("fsdp=128,tensor=8", False),
    ("fsdp=128,tensor=8", True),
]

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


def plans() -> list[Plan]:
    """Return the plan of every case."""
    config = preset("gpt3", vocab=50304)
    found = []
    for text, remat in CASES:
        mesh = MeshShape.parse(text)
        parts = BATCH // mesh.replicas
        found.append(plan(config, mesh, batch=BATCH, accumulate=parts, remat=remat, device_memory=LIMIT))
    return found


def show(found: list[Plan]) -> None:
    """Print the table."""
    print(f"{'mesh':28}{'remat':>7}{'memory':>12}{'fits':>6}{'sent per step':>16}")
    for row in found:
        memory, sent = f"{row.total / 1e9:,.1f} GB", f"{row.sent / 1e9:,.0f} GB"
        remat, fits = ("yes" if answer else "no" for answer in (row.remat, row.fits))
        print(f"{row.mesh!s:28}{remat:>7}{memory:>12}{fits:>6}{sent:>16}")


@styled
def memory_bars(plans: list[Plan], *, title: str) -> Figure:
    """Draw the memory that each plan takes on a device, kind by kind; bars far beyond the limit are cut off."""
    limits = [plan.device_memory for plan in plans if plan.device_memory is not None]
    limit = max(limits, default=None)
    totals = [plan.total for plan in plans]
    end = max(totals) * 1.18 if limit is None else min(max(totals) * 1.18, CROP * limit)
    figure = new_figure(9.2, 1.7 + 0.46 * len(plans))
    ax = figure.subplots()
    for row, each in enumerate(plans):
        _bar(ax, row, each, end)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object per mesh")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="also draw a picture")
    asked = parser.parse_args()
    found = plans()
    if asked.json:
        for row in found:
            print(json.dumps(row.to_dict()))
    else:
        show(found)
    if asked.figure is not None:
        save(memory_bars(found, title="GPT-3 on 1,024 devices: memory of each"), asked.figure)


if __name__ == "__main__":
    main()
