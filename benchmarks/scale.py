"""Time and memory of a training step, and of a token that is written, against length, width, layers and batch.

    python benchmarks/scale.py                tables; about five minutes on two cores
    python benchmarks/scale.py --json         one JSON object
    python benchmarks/scale.py --figure FILE  also a picture, such as docs/images/scale.png

Each point is measured in a process of its own. Beside it stands what the formulas of `gf.params` say: the FLOPs at the
rate of large matrix products and, for a token, the weights, keys and values at the rate at which memory is read; the
larger of the two times counts. The FLOPs are those of full attention, of which a causal mask skips up to half. The exit
status is 1 if a cost grows faster with any size than its formula.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from glassformer.core.execution import PLAIN, Execution
from glassformer.models import preset
from glassformer.models.costs import costs
from glassformer.plots import save
from glassformer.plots.style import colors, new_figure, styled, titled
from peers.machine import best_engine, machine
from peers.process import Process, call
from peers.show import seconds_text, talk

TRAINING, WRITING = "a training step", "a token"
STEPPERS = {TRAINING: ("peers.steps:Ours", 6), WRITING: ("peers.writers:OneToken", 50)}
"""What is built, and the steps it takes."""
SIZES: dict[str, dict[str, int]] = {
    TRAINING: {"layers": 2, "width": 128, "heads": 4, "length": 128, "batch": 4, "vocab": 256},
    WRITING: {"layers": 4, "width": 512, "heads": 8, "length": 256, "batch": 1, "vocab": 256},
}
SMALLEST = {"layers": 1, "width": 16, "heads": 2, "length": 64, "batch": 1, "vocab": 16}
AXES = {
    "length": (256, 512, 1024, 2048, 4096, 8192, 16384),
    "width": (64, 128, 256, 512, 1024, 2048),
    "layers": (1, 2, 4, 8, 16, 32),
    "batch": (1, 2, 4, 8, 16, 32, 64),
}
TILE = 128
"""Of attention along `length`, where all weights of the longest sequence would take 8 GB."""
MATRIX = {"rows": 65536, "columns": 1024}
GROWTH = {"time": 1.1, "memory": 1.05}
"""Powers of its formula by which a cost may grow, over the larger half of the sizes."""
FORMULA = {"time": "formula", "memory": "bytes"}
Row = dict[str, Any]


def measure() -> dict[str, Any]:
    """Return the rates of this machine, and the time and memory of every point beside the formulas."""
    talk("measuring: the rates of matrix products and of memory")
    rates = {"flops": call("peers.steps:matrix_rate", {}), "bytes": bandwidth()}
    rows = [point(work, axis, size, rates) for work in STEPPERS for axis in AXES for size in AXES[axis]]
    for work in STEPPERS:
        program = growth(work, SMALLEST)["growth"]  # compilers and kernels
        for row in rows:
            row["memory"] -= program * (row["work"] == work)
    powers = {
        f"{work}, {axis}, {cost}": power([row for row in rows if (row["work"], row["axis"]) == (work, axis)], cost)
        for work in STEPPERS
        for axis in AXES
        for cost in GROWTH
    }
    return {"machine": machine(), "rates": rates, "rows": rows, "powers": powers}


def point(work: str, axis: str, size: int, rates: dict[str, float]) -> Row:
    """Measure one model in fresh processes."""
    talk(f"measuring: {work}, {axis} {size:,}")
    sizes = {**SIZES[work], axis: size}
    if work == TRAINING and axis == "length":
        sizes |= {"batch": 1, "tile": TILE}
    formula, counted = by_formula(work, sizes, rates)
    found = growth(work, sizes)
    measured = {"time": min(found["seconds"]), "formula": formula, "memory": found["growth"], "bytes": counted}
    return {"work": work, "axis": axis, "size": size, **measured}


def growth(work: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Return the bytes that a fresh process takes for some steps, and the seconds of each."""
    build, steps = STEPPERS[work]
    settings = {"engine": best_engine(), **sizes}
    asked = {"imports": [build.partition(":")[0]], "build": build, "settings": settings, "steps": steps}
    return dict(call("peers.memory:growth", asked))


def by_formula(work: str, sizes: dict[str, int], rates: dict[str, float]) -> tuple[float, int]:
    """Return the time at the rates of this machine, and the bytes."""
    batch, length = sizes["batch"], sizes["length"]
    config = preset(
        "shakespeare", context=length, **{name: sizes[name] for name in ("layers", "width", "heads", "vocab")}
    )
    execution = Execution(tile=sizes["tile"]) if "tile" in sizes else PLAIN
    counted = costs(config, batch=batch, length=length, execution=execution)
    if work == TRAINING:
        return counted.flops_training * batch * length / rates["flops"], counted.training
    held = counted.weights + counted.kv_cache
    return max(held / rates["bytes"], counted.flops_forward * batch / rates["flops"]), held


def bandwidth() -> float:
    """Return the bytes that are read in a second by a matrix-vector product."""
    with Process("bandwidth", "peers.writers:Bandwidth", {"kernel": best_engine() == "cpu", **MATRIX}) as process:
        process.build()
        seconds = min(process.run(20))
        return float(process.facts["bytes"] / seconds)


def power(rows: list[Row], cost: str) -> float:
    """Fit cost ∝ formula^power to the larger half of the sizes, where fixed costs count little."""
    larger = rows[len(rows) // 2 :]
    formula = FORMULA[cost]
    return float(np.polyfit(*(np.log([row[name] for row in larger]) for name in (formula, cost)), 1)[0])


def show(found: dict[str, Any]) -> None:
    """Print a table for each size that grows, and the powers."""
    rates = found["rates"]
    print(f"matrix products {rates['flops'] / 1e9:.1f} GFLOP/s, memory {rates['bytes'] / 1e9:.1f} GB/s\n")
    print("".join(f"{head:>16}" for head in ("", "", "time", "by formula", "memory", "by formula")))
    for row in found["rows"]:
        cells = (row["work"], f"{row['axis']} {row['size']:,}", *map(seconds_text, (row["time"], row["formula"])))
        print(
            "".join(f"{cell:>16}" for cell in (*cells, *(f"{row[name] / 1e6:.1f} MB" for name in ("memory", "bytes"))))
        )
    print("\ngrows with this power of its formula")
    for name, value in found["powers"].items():
        print(f"  {name:34}{value:6.2f}")


def faults(found: dict[str, Any]) -> list[str]:
    """Say which costs grow faster than their formulas."""
    limits = {name: GROWTH[name.rpartition(" ")[2]] for name in found["powers"]}
    return [f"{name} grows with power {value:.2f}" for name, value in found["powers"].items() if value > limits[name]]


@styled
def draw(found: dict[str, Any]) -> Figure:
    """Draw each cost against each size on logarithmic scales, with its formula as a dashed line."""
    figure = new_figure(11.0, 9.6)
    panels = figure.subplots(4, 4)
    kinds = [(work, cost) for work in STEPPERS for cost in ("time", "memory")]
    for line, (work, cost) in zip(panels, kinds, strict=True):
        for ax, axis in zip(line, AXES, strict=True):
            rows = [row for row in found["rows"] if (row["work"], row["axis"]) == (work, axis)]
            sizes, formula = [row["size"] for row in rows], FORMULA[cost]
            ax.plot(sizes, [row[cost] for row in rows], "o-", color=colors().series[0], label="measured")
            ax.plot(sizes, [row[formula] for row in rows], "--", color=colors().series[1], label="by formula")
            ax.grid(visible=True)
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_xticks(sizes[::2], [f"{size:,}" for size in sizes[::2]])
            ax.yaxis.set_major_locator(LogLocator(numticks=6))
            ax.yaxis.set_major_formatter(EngFormatter({"time": "s", "memory": "B"}[cost]))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_minor_locator(NullLocator())
            ax.set_title(f"{work}: {cost}" if axis == "length" else "", loc="left")
            ax.set_xlabel(axis)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    words = "dashed: what is counted beforehand, at the rates of this machine's matrix products and memory"
    return titled(figure, "What training and writing cost, by size", words)


def main() -> int:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write a picture")
    given = parser.parse_args()
    found = measure()
    print(json.dumps(found)) if given.json else show(found)
    if given.figure:
        save(draw(found), given.figure)
    wrong = faults(found)
    for fact in wrong:
        print(fact, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
