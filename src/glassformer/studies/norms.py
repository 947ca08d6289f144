"""Norms before or after the sum: which of them trains, at which depth, with how long a warm-up."""

from typing import Any

import numpy as np

from .measures import session_of, training
from .study import Figures, Point, Rows, Study

SIZES = {"task": "text", "context": 32, "width": 32, "heads": 2, "batch": 8, "eval_tokens": 8192}
NOTHING_LEARNED = 0.9
"""A model whose loss is above this share of the entropy of single characters has learned how often each occurs."""


def grid(quick: bool) -> list[Point]:
    """Return depths, learning rates and warm-ups of 0, 10 and 50 % of all steps, for both places of the norm."""
    steps, depths, rates = (180, (2, 6), (1e-2,)) if quick else (300, (2, 6, 12), (1e-3, 3e-3, 1e-2))
    return [
        {**SIZES, "steps": steps, "eval_every": steps, "norm_position": place, "layers": layers, "lr": lr, "warmup": n}
        for place in ("pre", "post") for layers in depths for lr in rates
        for n in ((0, steps // 2) if quick else (0, steps // 10, steps // 2))
    ]  # fmt: skip


def measure(point: Point, seed: int) -> dict[str, Any]:
    """Train; and take the gradient of each block's last matrix before the first step."""
    session = session_of(seed=seed, **point)
    tokens: Any = session.task.train.tokens  # type: ignore[attr-defined]
    share = np.bincount(tokens) / len(tokens)
    batch = session.task.train.batch(0, point["batch"], seed)
    _, grads = session.model.loss_and_grads(session.model.init(seed), batch)
    norms = [float(np.linalg.norm(block["feed_forward"]["down"]["w"])) for block in grads["blocks"]]
    found = training(seed=seed, **point)
    loss, entropy = found.get("loss"), float(-np.sum(share[share > 0] * np.log(share[share > 0])))
    failed = loss is None or not loss < NOTHING_LEARNED * entropy
    return {"diverged": found["diverged"], "loss": loss, "failed": int(failed), "entropy": entropy, "gradients": norms}


def figures(rows: Rows) -> Figures:
    """Draw the loss by depth, one panel for each warm-up; and gradients at the first step, block by block."""
    from ..plots import style

    warmups, looks = rows.values("warmup"), dict(zip(rows.values("lr"), ("-", "--", ":"), strict=False))
    tints = {"pre": style.colors().blue, "post": style.colors().vermilion}
    figure, (*axes, last) = style.row(len(warmups) + 1, 4.2, 3.0, columns=2)
    for ax, n in zip(axes, warmups, strict=True):
        for (place, lr), look in ((key, looks[key[1]]) for key in rows.mean("loss", by=("norm_position", "lr"))):
            found = rows.where(warmup=n, norm_position=place, lr=lr).mean("loss", by="layers")
            ends = [one.low for one in found.values()], [one.high for one in found.values()]
            ax.plot(list(found), [one.mean for one in found.values()], look, color=tints[place], marker="o",
                    label=f"{place}, lr {lr:g}")  # fmt: skip
            ax.fill_between(list(found), *ends, color=tints[place], alpha=0.15)
        ax.axhline(rows[0]["entropy"], color=style.colors().edge, linewidth=1)
        ax.set(title=f"warm-up {n / rows[0]['steps']:.0%}", xlabel="blocks", ylabel="held-out loss")
        ax.sharey(axes[0])
    for place, tint in tints.items():
        deep = rows.where(norm_position=place, layers=max(rows.values("layers")))
        last.plot(np.median([row["gradients"] for row in deep], axis=0), color=tint, marker="o", label=place)
    last.legend()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    style.log_scale(last)
    last.set(title="before the first step", xlabel="block", ylabel="gradient of its last matrix")
    words = "held-out loss by depth, mean and range over seeds; the line is the entropy of single characters"
    return {"norms": style.titled(figure, "Norm before or after the sum", words)}


STUDY = Study(
    name="norms",
    question="Where does post-norm fail to train without a warm-up, and does pre-norm need one?",
    published="Xiong et al. (2020): with post-norm, gradients near the output are large at first, and training needs a"
    " warm-up; pre-norm trains without one.",
    grid=grid, measure=measure, figures=figures, minutes=8,
    answers={"failed": "lowest"}, whole={"norm_position": "pre"}, by=("warmup",),
    caveat=f"A run fails if its loss stays above {NOTHING_LEARNED:.0%} of the entropy of single characters.",
    columns=("norm_position", "layers", "lr", "warmup", "loss", "failed"),
)  # fmt: skip
