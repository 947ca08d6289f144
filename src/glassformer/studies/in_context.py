"""Learning in context: a line through the points of the prompt, as least squares finds it?"""

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..data import build_task
from ..ops import softmax
from ..progress import plural
from .measures import trained
from .study import Figures, Rows, Study

FRESH = 1_000_003
"""Added to the seed of the training, for prompts that it never saw."""
FORMULAS = {"squares": "least squares", "ridge": "ridge regression", "average": "average of the examples"}


def grid(quick: bool) -> list[dict[str, Any]]:
    """Return one model for each depth."""
    common = {"task": "regression", "heads": 4, "prompts": 2000}
    if quick:
        return [{**common, "points": 5, "resolution": 5, "width": 32, "layers": 2, "steps": 1200, "lr": 4e-3}]
    common |= {"points": 8, "resolution": 10, "width": 64, "steps": 3000, "lr": 2e-3}
    return [{**common, "layers": layers} for layers in (1, 2, 3)]


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train; return the mean squared errors on fresh prompts after 0, 1, … examples, of the model and of formulas."""
    shape = {name: point[name] for name in ("points", "resolution")}
    data: Any = build_task("regression", seed=seed + FRESH, **shape, train=point["prompts"], validation=1, held_out=1)
    batch = data.train.rows
    model = trained(seed=seed, **{name: value for name, value in point.items() if name != "prompts"})
    numbers = (np.arange(model.config.vocab) - model.config.vocab // 2) / point["resolution"]
    x, y = numbers[batch.tokens[:, 0::2]], numbers[batch.targets[:, 0::2]]  # (N, points + 1)
    logits, _ = model.model.forward(model.params, batch.tokens)
    # The mean of the predicted distribution has the least squared error that the distribution allows.
    guesses = {"model": softmax(np.asarray(logits[:, 0::2], dtype=np.float64))[0] @ numbers, **formulas(x, y, **shape)}
    errors = {name: np.mean((guess - y) ** 2, axis=0).tolist() for name, guess in guesses.items()}
    return {**errors, "error": errors["model"][-1], "ratio": errors["model"][-1] / errors["squares"][-1]}


def formulas(x: Array, y: Array, points: int, resolution: int) -> dict[str, Array]:
    """Return what formulas make of the examples before each x (N, points + 1); 0 before the first.

    Least squares takes the smallest of all lines that fit equally well. Ridge regression is told how lines are
    drawn: slope and offset have a variance of 1/3, and rounding y to steps of 1/resolution adds 1 / (12 · resolution²).
    """
    A = np.stack([x, np.ones_like(x)], axis=-1)
    penalty = np.eye(2) * 3 / (12 * resolution**2)
    found: dict[str, Array] = {name: np.zeros_like(y) for name in FORMULAS}
    for k in range(1, points + 1):
        seen, known = A[:, :k], y[:, :k, None]
        lines = {"squares": np.linalg.pinv(seen) @ known}
        lines["ridge"] = np.linalg.solve(seen.mT @ seen + penalty, seen.mT @ known)
        for name, line in lines.items():
            found[name][:, k] = (A[:, k] * line[..., 0]).sum(axis=-1)
        found["average"][:, k] = y[:, :k].mean(axis=-1)
    return found


def figures(rows: Rows) -> Figures:
    """Draw the error by the number of examples: the models, and the formulas on the same prompts."""
    from ..plots import style

    (figure, (ax,)), theme, count = style.row(1, 6.4, 4.4), style.colors(), range(rows[0]["points"] + 1)
    runs = Rows(row for row in rows if not row["diverged"])
    for color, layers in zip(theme.series, runs.values("layers"), strict=False):
        errors = [row["model"] for row in runs.where(layers=layers)]
        style.band(ax, count, errors, color, f"model, {plural(layers, 'block')}")
    for line, (name, title) in zip(("-", "--", ":"), FORMULAS.items(), strict=True):
        ax.plot(count, np.mean([row[name] for row in runs], axis=0), line, color=theme.ink, label=title)
    style.log_scale(ax)
    ax.set(xlabel="examples in the prompt", ylabel="mean squared error")
    figure.legend(loc="outside lower center", ncols=2)
    words = f"mean squared error on {rows[0]['prompts']:,} fresh prompts, with the range of the seeds"
    return {"error": style.titled(figure, "Learning in context", words)}


STUDY = Study(
    name="in_context",
    question="Does a model find the line behind the points in its prompt as well as least squares does?",
    published="Garg et al. (2022): Transformers trained on prompts with random linear functions predict them about as "
    "well as least squares does.",
    grid=grid, measure=measure, figures=figures, columns=("layers", "error", "ratio"),
    answers={"ratio": "lowest"}, whole={"layers": 1},
    caveat="ratio: the squared error after all examples, times that of least squares.",
    labels=("prompts",), minutes=7,
)  # fmt: skip
