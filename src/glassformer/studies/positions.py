"""Positions: which scheme goes on beyond the length that it was trained on?"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.array_task import array_task
from .coupling import START, register_coupled, sequences
from .measures import on_accelerator, session_on
from .study import Rows, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMES = ("coupled", "rotary", "alibi", "relative", "sinusoidal", "learned", "none")
STEPS = {"copy": 500, "reverse": 500, "addition": 1000}
RIGHT = 0.95  # share of exactly right answers up to which a length counts as reached


def _grid(quick: bool) -> list[dict[str, Any]]:
    small = {"longest": 10, "tested": 40, "width": 64, "batch": 64, "lr": 3e-3}
    if quick:
        small |= {"longest": 5, "tested": 15, "width": 32, "steps": 200}
        return [{"operation": "copy", "scheme": scheme, **small} for scheme in ("coupled", "rotary", "learned", "none")]
    if on_accelerator():
        large = {"longest": 30, "tested": 100, "width": 256, "batch": 512, "lr": 1e-3, "steps": 6000}
        return [{"operation": "addition", "scheme": scheme, **large} for scheme in ("coupled", "rotary", "learned")]
    return [{"operation": operation, "scheme": scheme, **small, "steps": steps}
            for operation, steps in STEPS.items() for scheme in SCHEMES]  # fmt: skip


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train on sequences of 1 to `longest` letters; return the share of right answers to longer ones."""
    operation, scheme, longest, tested = (point[name] for name in ("operation", "scheme", "longest", "tested"))
    rng = np.random.default_rng(seed)
    # Vectors at both ends are used less often in training; a test starts behind those at the beginning.
    starts = [(0, tested + longest), (longest, longest + 1)] if scheme == "coupled" else [(0, 1)] * 2
    drawn = rng.integers(1, longest + 1, size=100 * point["batch"] * max(1, longest // 10) * 3)
    train = sequences(operation, drawn, rng, starts[0])
    lengths = sorted({min(round(longest * times), tested) for times in (0.5, 1, 1.2, 1.5, 2, 2.5, 3)} | {tested})
    tests = [sequences(operation, np.full(200, length), rng, starts[1]) for length in lengths]
    model = {"positions": scheme, "vocab": START + tested + longest, "context": 3 * tested + 6, "width": point["width"],
             "heads": 4, "head_width": max(32, point["width"] // 4), "layers": 2, "tied_head": False}  # fmt: skip
    register_coupled()
    if scheme == "coupled" and operation == "reverse":
        model["positions"] = "coupled_mirrored"
    recipe = {"steps": point["steps"], "batch": point["batch"], "lr": point["lr"], "warmup": 100, "weight_decay": 0.1}
    session = session_on(array_task(train, validation=tests[1]), seed, model, {**recipe, "eval_every": 10**6})
    for _ in session.steps():
        pass
    found = [session.trainer.evaluate(session.state.params, test, metric="sequence") for test in tests]
    right = [float(one.accuracy or 0) for one in found]
    reached = [length for n, length in enumerate(lengths) if min(right[: n + 1]) >= RIGHT]
    return {"trained": right[lengths.index(longest)], "twice": right[lengths.index(2 * longest)], "farthest": right[-1],
            "reach": max(reached, default=0), "lengths": lengths, "right": right}  # fmt: skip


def finding(rows: Rows) -> list[str]:
    """Name the scheme that goes furthest for each operation."""
    longest, tested, seeds = rows[0]["longest"], rows[0]["tested"], len(rows.values("seed"))
    said = []
    for operation in rows.values("operation"):
        own = rows.where(operation=operation)
        far, reach = own.mean("farthest", by="scheme"), own.mean("reach", by="scheme")
        best, *others = sorted(far, key=lambda name: (-far[name].mean, -reach[name].mean))
        shown = [
            f"{name} {far[name].mean:.0%} ({far[name].low:.0%} to {far[name].high:.0%})" for name in (best, *others)
        ]
        known = [name for name, one in own.mean("trained", by="scheme").items() if one.mean < RIGHT]
        said += [
            f"{operation}, trained on up to {longest} symbols and tested on {tested}: {best} positions answer "
            f"{far[best].mean:.0%} right ({far[best].low:.0%} to {far[best].high:.0%}, {seeds} seeds), "
            f"{'the next best, ' + shown[1] if others else 'no other was tried'}.",
            f"{operation}: {RIGHT:.0%} are right up to "
            + ", ".join(f"{reach[name].mean:.0f} symbols with {name}" for name in (best, *others))
            + (f"; at {longest} symbols already, {', '.join(known)} did not reach this." if known else "."),
        ]
    return said[::2] + said[1::2]


def figures(rows: Rows) -> dict[str, "Figure"]:
    """Draw the share of right answers by length, a panel for each operation."""
    from ..plots import style

    names = rows.values("operation")
    figure = style.new_figure(3.6 * len(names) + 1, 3.2)
    for ax, operation in zip(style.panels(figure, len(names), len(names)), names, strict=True):
        for scheme, color in zip(SCHEMES, style.colors().series, strict=False):
            own = [row for row in rows.where(operation=operation) if row["scheme"] == scheme]
            if own:
                mean = np.mean([row["right"] for row in own], axis=0)
                ax.plot(own[0]["lengths"], mean, "o-", color=color, label=scheme, markersize=3)
        ax.axvline(rows[0]["longest"], color=style.colors().gray, linestyle=":")
        ax.set(title=operation, xlabel="symbols", ylabel="answers right", ylim=(-0.03, 1.03))
    figure.axes[-1].legend()
    words = "share of exactly right answers by length, means over seeds; training ended at the dotted line"
    return {"lengths": style.titled(figure, "Beyond the length of training", words)}


STUDY = Study(
    name="positions", question="Which positions go on beyond the length they were trained on?",
    published="Coupled positions, trained on additions of 1 to 30 digits, add 200 digits (Cho et al. 2024, Position "
    "Coupling); with Abacus embeddings, 20 digits of training reach 100 (McLeish et al. 2024).",
    grid=_grid, measure=measure, finding=finding, figures=figures, minutes=20,
    columns=("operation", "scheme", "trained", "twice", "farthest", "reach"),
)  # fmt: skip
