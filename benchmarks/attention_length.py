"""Attention against the length of a sequence, forward and backward: dense, tiled, windowed, strided, and its peers'.

    python benchmarks/attention_length.py                a table; about two minutes on two cores
    python benchmarks/attention_length.py --json         one JSON object
    python benchmarks/attention_length.py --figure FILE  also a picture, such as docs/images/attention_length.png

Contenders take turns at all lengths, each in a process of its own. Beside the measured time stand the FLOPs by the
formulas; beside the memory by which a fresh process grows in one step stand the bytes that the formulas count.
`benchmarks/attention.py` measures the same with fewer lengths, and the bars.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from attention import NAMES, grown_bytes, growth
from glassformer.plots import save
from glassformer.plots.style import colors, new_figure, styled, titled
from peers.machine import machine

LENGTHS = {
    "dense": (1024, 2048, 4096),
    "tiled": (1024, 2048, 4096, 8192),
    "torch": (1024, 2048, 4096, 8192),
    "jax": (1024, 2048, 4096),
    "window": (2048, 4096, 8192, 16384),
    "strided": (2048, 4096, 8192, 16384),
}

MARKERS = "osD^vX"


def measure(*, seconds: float, peers: bool) -> dict[str, Any]:
    """Return the times, then the memory, of every way at every length."""
    report = growth(peers=peers, seconds=seconds, talk=talk, lengths=LENGTHS).to_dict()
    rows, exponents = report["facts"]["rows"], report["facts"]["exponents"]
    for row in rows:
        talk(f"memory: {row['name']}, {row['length']:,}")
        row["grown_bytes"] = grown_bytes(row["way"], row["length"])
    return {"machine": machine(), "rows": rows, "exponents": exponents, "bars": report["bars"]}


def talk(text: str) -> None:
    """Say what goes on, on stderr."""
    print(text, file=sys.stderr, flush=True)


def show(found: dict[str, Any]) -> None:
    """Print the table."""
    heads = ("", "positions", "forward", "backward", "GFLOP", "GFLOP/s", "memory", "counted")
    print(f"{heads[0]:26}" + "".join(f"{head:>11}" for head in heads[1:]))
    for row in found["rows"]:
        flops = row["flops_forward"] + row["flops_backward"]
        cells = [
            f"{row['length']:,}",
            f"{1000 * row['forward']['median']:.1f} ms",
            f"{1000 * row['backward']['median']:.1f} ms",
            f"{flops / 1e9:.2f}",
            f"{row['flops_per_second'] / 1e9:.1f}",
            f"{row['grown_bytes'] / 1e6:.0f} MB",
            f"{row['bytes'] / 1e6:.0f} MB",
        ]
        print(f"{row['name']:26}" + "".join(f"{cell:>11}" for cell in cells))
    print("\nthe time grows with this power of the length")
    for way, power in found["exponents"].items():
        print(f"{NAMES[way]:26}forward {power['forward']:.2f}, backward {power['backward']:.2f}")


@styled
def draw(found: dict[str, Any]) -> Figure:
    """Draw time and memory against the length on logarithmic scales, where a power of the length is a straight line."""
    figure = new_figure(10.4, 4.3)
    time, memory = figure.subplots(1, 2)
    time.set_title("time, forward and backward")
    memory.set_title("memory beside the inputs")
    words = []
    for number, (way, power) in enumerate(found["exponents"].items()):
        own = [row for row in found["rows"] if row["way"] == way]
        lengths, seconds = [row["length"] for row in own], [row["seconds"]["median"] for row in own]
        name, color = NAMES[way].removeprefix("glassformer "), colors().series[number]
        # Thinner and thinner, so that curves that agree are all visible.
        look = {"color": color, "linewidth": max(3.6 - 0.6 * number, 1), "markersize": max(9.0 - number, 4)}
        look |= {"marker": MARKERS[number], "markeredgecolor": colors().page}
        time.plot(lengths, seconds, label=f"{name}: time like $T^{{{power['seconds']:.2f}}}$", **look)
        memory.plot(lengths, [row["grown_bytes"] for row in own], **look)
        words.append(f"{name} takes {seconds[-1]:.3g} s at {lengths[-1]:,} positions")
    for ax, unit in ((time, "s"), (memory, "B")):
        ax.grid(visible=True)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(EngFormatter(unit))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("positions T")
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return titled(figure, "Attention and the length of a sequence", f"{'; '.join(words)}.")


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write a picture")
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to measure times (default 30)")
    parser.add_argument("--no-peers", action="store_true", help="leave PyTorch and JAX out")
    given = parser.parse_args()
    found = measure(seconds=given.seconds, peers=not given.no_peers)
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    if given.figure:
        save(draw(found), given.figure)


if __name__ == "__main__":
    main()
