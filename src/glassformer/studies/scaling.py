"""Splitting a budget of arithmetic between parameters and tokens: a sweep on text, or the reader's own measurements.

At each budget C = 6 · N · D a parabola in log N is fitted to the losses; its lowest point is the best size N. The
exponents of N ∝ C^a and D ∝ C^b are slopes over the budgets, their intervals those of a bootstrap over runs.
"""

import functools
import itertools
import json
import math
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import DataError
from ..core.files import explained, write_new
from ..progress import plural
from .measures import check_training, on_accelerator, training
from .study import Figures, Point, Rows, Study

HINT = 'it is a list of objects: [{"parameters": 1e6, "tokens": 2e7, "loss": 3.1}, …]; compute may stand for tokens'
RESAMPLES = 1000


def grid(quick: bool) -> list[Point]:
    """Return sizes at several budgets, each trained for the tokens that its budget leaves; more on an accelerator."""
    widths, vocab, layers, batch, context = [8, 12, 16, 24, 32, 48, 64, 96, 128], 103, 2, 8, 64
    budgets, most = ([4e9, 1.2e10], 6e5) if quick else ([1e10, 3e10, 1e11, 3e11], 2.1e6)
    if on_accelerator():
        widths, vocab, layers, batch, context, most = [32, 48, 64, 96, 128, 192, 256, 384, 512], 256, 4, 64, 128, 6e7
        budgets = [1e12, 3e12] if quick else [3e12, 1e13, 3e13, 1e14]
    points = []
    for budget in budgets:
        for width in widths:
            tokens = budget / 6 / (12 * layers * width**2 + vocab * width)
            steps = round(tokens / (batch * context))
            if tokens <= most and steps >= 60:
                lr = round(0.003 * math.sqrt(64 / width), 5)
                how = {"layers": layers, "heads": 2, "context": context, "batch": batch, "lr": lr, "steps": steps}
                points.append({"budget": budget, "width": width, **how, "warmup": steps // 10, "eval_every": steps})
    return points


def _settings(point: Point) -> dict[str, Any]:
    """Return what a point trains: Python's help pages, or on an accelerator the source of its library, byte by byte."""
    large = {"data": str(_library()), "tokenizer": "bytes"} if on_accelerator() else {}
    return {"task": "text", **large, **{name: value for name, value in point.items() if name != "budget"}}


@functools.cache
def _library() -> Path:
    """Write the modules of Python's own library into one file; packages that were installed may lie beside them."""
    home = Path(sysconfig.get_paths()["stdlib"])
    modules = [path for path in sorted(home.rglob("*.py")) if "-packages" not in str(path.relative_to(home))]
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in modules)
    target = Path(tempfile.gettempdir()) / f"python-{sysconfig.get_python_version()}-library.txt"
    return write_new(target, text.encode())


def measure(point: Point, seed: int) -> dict[str, Any]:
    """Train one size; return what it took and the loss on held-out text."""
    found = training(seed=seed, **_settings(point))
    return {name: found.get(name) for name in ("diverged", "parameters", "tokens", "loss")}


def rows_from(path: Path) -> Rows:
    """Read measurements; those whose compute differs by less than a fifth are one budget."""
    with explained(path, DataError, hint=HINT, done="read"):
        text = path.read_text(encoding="utf-8")
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}", hint=HINT) from error
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} holds no list of measurements", hint=HINT)
    rows = sorted((_entry(path, number, one) for number, one in enumerate(entries)), key=lambda row: row["budget"])
    for before, row in itertools.pairwise(rows):
        row["budget"] = before["budget"] if row["budget"] < 1.2 * before["budget"] else row["budget"]
    return Rows(rows)


def _entry(path: Path, number: int, one: Any) -> dict[str, Any]:
    given: dict[str, Any] = one if isinstance(one, dict) else {}
    size: Any = given.get("parameters")
    loss = given.get("loss")
    amount = given.get("compute") if given.get("tokens") is None else given["tokens"]
    if not all(isinstance(value, int | float) and math.isfinite(value) and value > 0 for value in (size, loss, amount)):
        fact = f"entry {number} of {path} lacks positive parameters, a loss, and tokens or compute"
        raise DataError(f"{fact}: {json.dumps(one):.100}", hint=HINT)
    tokens = given.get("tokens") or given["compute"] / 6 / size
    budget = float(given.get("compute") or 6 * size * tokens)
    return {"budget": budget, "parameters": size, "tokens": tokens, "loss": loss, "seed": 0}


def best_sizes(rows: list[dict[str, Any]]) -> dict[float, float]:
    """Return the best size at each budget; a budget whose parabola has no lowest point among its sizes is left out."""
    found = {}
    for budget in sorted({row["budget"] for row in rows}):
        part = [row for row in rows if row["budget"] == budget and math.isfinite(row["loss"])]
        x, y = np.log([row["parameters"] for row in part]), [row["loss"] for row in part]
        if len(set(x)) < 3:
            continue
        a, b, _ = np.polyfit(x - x.mean(), y, 2)
        if a > 0 and x.min() <= x.mean() - b / 2 / a <= x.max():
            found[budget] = float(np.exp(x.mean() - b / 2 / a))
    return found


def slope(rows: list[dict[str, Any]]) -> float | None:
    """Return a in N ∝ C^a over the budgets with a best size; None with fewer than two of them."""
    best = best_sizes(rows)
    return float(np.polyfit(np.log(list(best)), np.log(list(best.values())), 1)[0]) if len(best) > 1 else None


def exponents(rows: Rows) -> tuple[float, float, float] | None:
    """Return a in N ∝ C^a with its 95% interval, from resampled runs; None where no exponent can be fitted."""
    value, rng = slope(rows), np.random.default_rng(0)
    drawn = [slope([rows[i] for i in rng.integers(len(rows), size=len(rows))]) for _ in range(RESAMPLES)]
    known = [one for one in drawn if one is not None]
    if value is None or len(known) < RESAMPLES // 2:
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return value, float(low), float(high)


def finding(rows: Rows) -> list[str]:
    """Return the exponents with their intervals, and the best sizes that they were fitted to."""
    found, best, budgets = exponents(rows), best_sizes(rows), rows.values("budget")
    sizes = ", ".join(f"{size:,.0f} at {budget:.1e}" for budget, size in best.items()) or "none"
    said = f"The best number of parameters is {sizes} FLOPs ({len(best)} of {plural(len(budgets), 'budget')} have one "
    said += f"inside the sweep; {plural(len(rows), 'run')})."
    if found is None:
        return [f"No exponent: it takes best sizes at two budgets. {said}"]
    a, low, high = found
    return [
        f"With the budget C, the best number of parameters grows as C^{a:.2f} (95% interval {low:.2f} to {high:.2f}), "
        f"and the tokens as C^{1 - a:.2f} ({1 - high:.2f} to {1 - low:.2f}).",
        said,
    ]


def figures(rows: Rows) -> Figures:
    """Draw the loss over the size at each budget, and the best sizes over the budgets."""
    from ..plots import style

    (figure, (left, right)), best = style.row(2, 4.5, 3.8), best_sizes(rows)
    for budget, color in zip(rows.values("budget"), style.colors().series * 9, strict=False):
        part = sorted((row["parameters"], row["loss"]) for row in rows.where(budget=budget))
        left.semilogx(*zip(*part, strict=True), "o", color=color, ms=4, label=f"{budget:.1e} FLOPs")
        x, y = np.log([size for size, _ in part]), [loss for _, loss in part]
        if budget in best:
            line = np.linspace(x.min(), x.max(), 50)
            curve = np.polyval(np.polyfit(x - x.mean(), y, 2), line - x.mean())
            left.semilogx(np.exp(line), curve, color=color)
            right.loglog(budget, best[budget], "o", color=color)
    if len(best) > 1:
        a, b = np.polyfit(np.log(list(best)), np.log(list(best.values())), 1)
        right.loglog(list(best), [math.exp(b) * budget**a for budget in best], color=style.colors().gray)
    style.log_scale(right)
    left.set(xlabel="parameters", ylabel="loss")
    right.set(xlabel="budget in FLOPs", ylabel="best number of parameters")
    left.legend(fontsize=7)
    words = "loss by size, with a parabola for each budget that has a lowest point; and this point by budget"
    return {"budgets": style.titled(figure, "The best size at each budget", words)}


STUDY = Study(
    name="scaling",
    question="How should a budget be split between parameters and tokens?",
    published="Hoffmann et al. 2022 (Training Compute-Optimal Large Language Models): parameters and tokens both grow "
    "as about C^0.5. Kaplan et al. 2020 (Scaling Laws for Neural Language Models): parameters as C^0.73, tokens as "
    "C^0.27.",
    grid=grid, measure=measure, finding=finding, figures=figures, rows_from=rows_from, minutes=6,
    columns=("budget", "width", "parameters", "tokens", "loss"),
    check=lambda point: check_training(**_settings(point)),
)  # fmt: skip
