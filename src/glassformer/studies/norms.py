"""Norms before or after the sum: which of them trains, at which depth, with how long a warm-up."""

from typing import Any

import numpy as np

from ..progress import plural
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


def finding(rows: Rows) -> list[str]:
    """Return in words at which depths each form fails to train, without and with a warm-up, and its gradients."""
    found = rows.mean("failed", by=("norm_position", "warmup"))
    failed = {key: round(one.mean * one.runs) for key, one in found.items()}
    cold, warm = failed["post", 0], min(n for (place, warmup), n in failed.items() if place == "post" and warmup)
    if failed["pre", 0] >= cold:
        head = "Not as published: without a warm-up, post-norm fails no more often than pre-norm"
    elif warm < cold:
        rest = f" ({warm} of its runs fail even with the best)" if warm else ""
        head = f"As published, pre-norm needs no warm-up, and one helps post-norm{rest}"
    else:
        head = "Half as published: post-norm fails where pre-norm trains, but no warm-up helps it"
    runs = f"{plural(len(rows.values('seed')), 'seed')}, {plural(len(rows.values('lr')), 'learning rate')}"
    said = [f"{head}: without one, post-norm fails in {_told(rows, 'post', 0)}, pre-norm in"
            f" {_told(rows, 'pre', 0)} ({runs})."]  # fmt: skip
    said.append(f"A run fails if its loss stays above {NOTHING_LEARNED:.0%} of the entropy of single characters.")
    steps = rows[0]["steps"]
    for n in rows.values("warmup")[1:]:
        text = f"With a warm-up of {n / steps:.0%} of {steps} steps, post-norm fails in"
        said.append(f"{text} {_told(rows, 'post', n)}, pre-norm in {_told(rows, 'pre', n)}.")
    for place in rows.values("norm_position"):
        deep = rows.where(norm_position=place, layers=max(rows.values("layers")))
        ratio = np.median([row["gradients"][-1] / max(row["gradients"][0], 1e-30) for row in deep])
        text = f"Before the first step, the gradient of the last block of {deep[0]['layers']} is"
        said.append(f"{text} {ratio:.3g} times that of the first, with {place}-norm.")
    return said


def _told(rows: Rows, place: str, warmup: int) -> str:
    """Name the depths at which runs failed, with how many of how many."""
    found = rows.where(norm_position=place, warmup=warmup).mean("failed", by="layers")
    bad = [f"{round(one.mean * one.runs)} of {one.runs} runs with {n} blocks" for n, one in found.items() if one.mean]
    return " and in ".join(bad) or f"none of {sum(one.runs for one in found.values())} runs"


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
    grid=grid, measure=measure, finding=finding, figures=figures, minutes=8,
    columns=("norm_position", "layers", "lr", "warmup", "loss", "failed"),
)  # fmt: skip
