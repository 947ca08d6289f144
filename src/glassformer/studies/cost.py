"""The cost of length, width, depth and heads: predicted from the formulas, and measured."""

import itertools
import time
import tracemalloc
from typing import Any

import numpy as np

from .. import ops
from ..config import DecoderConfig
from ..core.errors import ConfigError
from ..models import Batch, build
from ..models.costs import costs
from .measures import on_accelerator
from .study import Figures, Point, Rows, Study

WAYS, CHANNELS, WINDOW = ("dense", "tiled", "windowed"), 32, 64
BASE: Point = {"length": 128, "width": 128, "layers": 2, "heads": 4}
AXES = {"width": [32, 64, 128, 256, 512], "layers": [1, 2, 4, 8, 16], "heads": [1, 2, 4, 8, 16]}
LENGTHS = [50, 100, 200, 400, 800, 1600, 3200, 6400]


def grid(quick: bool) -> list[Point]:
    """Return attention alone at every length in three ways, and a model's step along width, depth and heads."""
    lengths, most = (LENGTHS[:5], 3) if quick else (LENGTHS, 5)
    alone = [{"axis": "length", "way": way, "length": length} for way in WAYS for length in lengths]
    return [*alone, *({"axis": axis, **BASE, axis: value} for axis, values in AXES.items() for value in values[:most])]


def check(point: Point) -> None:
    """Refuse an engine whose time and memory are not those of this process."""
    if on_accelerator():
        raise ConfigError("this study measures the cores of this machine", hint="use the engine cpu or numpy")


def measure(point: Point, seed: int) -> dict[str, Any]:
    """Return seconds and bytes of one forward and backward pass, and the FLOPs and bytes that the formulas say."""
    call, flops, size = (_attention if point["axis"] == "length" else _model)(point, np.random.default_rng(seed))
    call()  # compiles and warms up
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.3 and len(times) < 50):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    tracemalloc.start()
    try:
        call()
        return {"time": min(times), "memory": tracemalloc.get_traced_memory()[1], "flops": flops, "bytes": size}
    finally:
        tracemalloc.stop()


def _attention(point: Point, rng: np.random.Generator) -> tuple[Any, int, int]:
    n, way = point["length"], point["way"]
    q, k, v, dy = rng.normal(size=(4, 1, 1, n, CHANNELS)).astype(np.float32)
    window = WINDOW if way == "windowed" else None
    pattern = ops.Pattern(causal=window is not None, window=window)

    def dense() -> Any:
        return ops.attention_backward(dy, ops.attention(q, k, v)[1])

    def tiled() -> Any:
        return ops.attention_tiled_backward(dy, ops.attention_tiled(q, k, v, pattern=pattern)[1], pattern=pattern)

    # Forward 4 FLOPs for each pair and channel, backward twice as many. Only dense attention keeps its weights.
    flops = 12 * n * min(n, window or n) * CHANNELS
    return (dense, flops, 4 * n * n) if way == "dense" else (tiled, flops, 4 * n * 4 * CHANNELS)


def _model(point: Point, rng: np.random.Generator) -> tuple[Any, int, int]:
    config = DecoderConfig(vocab=64, context=point["length"], **{name: point[name] for name in AXES})
    model, tokens = build(config), rng.integers(0, 64, size=(4, point["length"] + 1))
    params, batch, count = model.init(seed=0), Batch(tokens[:, :-1], tokens[:, 1:]), costs(config, batch=4)
    flops = count.flops_training * 4 * point["length"]
    return lambda: model.loss_and_grads(params, batch), flops, count.activations + count.gradients


def exponent(rows: Rows, x: str, y: str) -> tuple[float, float]:
    """Fit y ∝ x^e to the larger half of the sizes, where fixed costs count little; return e and its standard error."""
    sizes = sorted(rows.values(x))
    found = [row for row in rows if row[x] in sizes[-max(3, (len(sizes) + 1) // 2) :]]
    a, b = (np.log([row[name] for row in found]) for name in (x, y))
    line, spread = np.polyfit(a, b, 1, cov=True)
    return float(line[0]), float(np.sqrt(spread[0, 0]))


def derived(rows: Rows) -> Rows:
    """Return with which power of each size time and memory grow, for each seed."""
    kinds = list(dict.fromkeys((row["axis"], row.get("way")) for row in rows))
    return Rows(
        {"axis": axis, "way": way, "seed": seed,
         **{f"power_of_{name}": exponent(rows.where(axis=axis, way=way, seed=seed), axis, name)[0]
            for name in ("time", "memory")}}
        for axis, way in kinds for seed in rows.values("seed")
    )  # fmt: skip


def figures(rows: Rows) -> Figures:
    """Draw attention by length, and a training step along each size, measured beside predicted."""
    from ..plots import style

    def draw(ax: Any, x: str, part: Rows, name: str, mark: str, color: str, label: str) -> None:
        found = part.mean(name, by=x)
        smallest = {"time": 1.0, "memory": 1e6}[name] if x == "length" else min(one.mean for one in found.values())
        ax.plot(list(found), [one.mean / smallest for one in found.values()], mark, color=color, label=label)
        style.log_scale(ax)
        ax.set(xscale="log", xlabel=x)
        ax.set_xticks(list(found), [f"{value:,}" for value in found], fontsize=7)
        ax.minorticks_off()

    (length, both), (model, six) = style.row(2, 4.5, 3.6), style.row(6, 3.0, 2.8, columns=3)
    for ax, (name, unit) in zip(both, (("time", "seconds"), ("memory", "MB")), strict=True):
        for way, color in zip(WAYS, style.colors().series, strict=False):
            draw(ax, "length", rows.where(axis="length", way=way), name, "o-", color, way)
        ax.set_ylabel(unit)
    for ax, (pair, axis) in zip(six, itertools.product((("time", "flops"), ("memory", "bytes")), AXES), strict=True):
        for name, mark, color in zip(pair, ("o-", "--"), style.colors().series, strict=False):
            draw(ax, axis, rows.where(axis=axis), name, mark, color, "measured" if mark == "o-" else "by formula")
        ax.set_ylabel(f"{pair[0]}, times the smallest")
        ax.set_ylim(0.9, max(2.2, ax.get_ylim()[1]))
    for figure in (length, model):
        figure.axes[0].legend()
    straight = "both axes are logarithmic, so that the slope of a line is the exponent"
    return {
        "length": style.titled(length, "Attention alone, forward and backward", straight),
        "sizes": style.titled(model, "A training step", f"{straight}; where lines meet, the formula is right"),
    }


STUDY = Study(
    name="cost",
    question="What do length, width, depth and heads cost?",
    published="Vaswani et al. 2017 (Attention Is All You Need, table 1): self-attention takes time in proportion to "
    "n² · d for n tokens of width d. Dao et al. 2022 (FlashAttention): in tiles, its memory is in proportion to n.",
    grid=grid, measure=measure, figures=figures, check=check, minutes=1,
    answers={"power_of_time": "lowest", "power_of_memory": "lowest"}, whole={"way": "dense"}, by=("axis",),
    derived=derived,
    caveat="The powers are fitted to the larger half of the sizes.",
    columns=("axis", "way", "length", "width", "layers", "heads", "time", "memory", "flops", "bytes"),
)  # fmt: skip
