"""Optimizers at their best rates: how many steps does each take to the same loss on a text?"""

from typing import Any

import numpy as np

from .measures import loss_curve, steps_to
from .study import Figures, Rows, Study

RATES = {"sgd": 0.1, "adam": 4e-3, "adamw": 4e-3, "lion": 1.2e-3, "muon": 2e-2}  # times 1/4, 1/2, 1, 2 and 4
OWN: dict[str, dict[str, float]] = {
    "sgd": {"momentum": 0.9}, "adam": {"beta2": 0.99}, "adamw": {"beta2": 0.99, "weight_decay": 0.1},
}  # fmt: skip
TITLES = {"sgd": "SGD with momentum", "adam": "Adam", "adamw": "AdamW", "lion": "Lion", "muon": "Muon"}


def grid(quick: bool) -> list[dict[str, Any]]:
    """Return every optimizer with every rate of its grid."""
    size = {"width": 32, "heads": 2, "steps": 120} if quick else {"width": 64, "heads": 4, "steps": 300}
    common = {"task": "text", **size, "layers": 2, "context": 32, "batch": 16, "schedule": "constant", "warmup": 20}
    common |= {"weight_decay": 0.0, "eval_every": size["steps"] // 20, "eval_tokens": 4096, "keep": "last"}
    rates = [(name, 2.0**n * rate) for name, rate in RATES.items() for n in (range(3) if quick else range(-2, 3))]
    return [{**common, "optimizer": name, "lr": float(f"{rate:.3g}"), **OWN.get(name, {})} for name, rate in rates]


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train, and return the held-out losses along the way."""
    return loss_curve(seed=seed, **point)


def compared(rows: Rows) -> tuple[float, dict[str, Rows]]:
    """Return the loss to reach, and the test runs of each optimizer at its best rate.

    Seed 0 alone chooses the loss and the rates. The loss is Adam's after two thirds of its steps.
    """
    search, test = rows.where(seed=0), Rows(row for row in rows if row["seed"]) or rows
    curves = [row["losses"] for row in search.where(optimizer="adam") if not row["diverged"]]
    target = min((losses[2 * len(losses) // 3] for losses in curves), default=0.0)

    def order(row: dict[str, Any]) -> tuple[float, float]:
        return steps_to([row], target)[0], np.inf if row["diverged"] else row["loss"]

    best = {name: min(search.where(optimizer=name), key=order)["lr"] for name in TITLES}
    return target, {name: test.where(optimizer=name, lr=lr) for name, lr in best.items()}


def derived(rows: Rows) -> Rows:
    """Return the steps to the loss in each test run."""
    target, tests = compared(rows)
    return Rows(
        {"optimizer": name, "lr": row["lr"], "seed": row["seed"], "steps_to_loss": float(steps_to([row], target)[0])}
        for name, runs in tests.items() for row in runs
    )  # fmt: skip


def figures(rows: Rows) -> Figures:
    """Draw the losses at the best rates, with all test seeds, and the last loss by rate."""
    from ..plots import style

    (figure, (left, right)), (target, tests) = style.row(2, 4.5, 3.8), compared(rows)
    for color, (name, runs) in zip(style.colors().series, tests.items(), strict=False):
        curves = [row for row in runs if not row["diverged"]]
        if curves:
            style.band(left, curves[0]["at"], [row["losses"] for row in curves], color, TITLES[name])
        by_rate = rows.where(optimizer=name).mean("loss", by="lr")
        right.plot(list(by_rate), [one.mean for one in by_rate.values()], color=color, marker="o", markersize=3)
    left.axhline(target, color=style.colors().quiet, lw=0.8, ls=":")
    left.set(xlabel="step", ylabel="held-out loss", ylim=(None, 3.2))
    right.set(xlabel="learning rate", ylabel="last held-out loss", xscale="log")
    right.set_ylim(top=min(3.2, right.get_ylim()[1]))
    left.legend()
    words = "held-out losses at the best rates, with the range of the test seeds and the loss to reach; losses by rate"
    return {"losses": style.titled(figure, "Optimizers at their best rates", words)}


STUDY = Study(
    name="optimizers",
    question="How many steps does each optimizer take to the same loss, each at its best learning rate?",
    published="Jordan et al. (2024) report a speed-up of 1.35 by Muon over AdamW in the NanoGPT speed run, Liu et al. "
    "(2025) about half of AdamW's compute in large models; Chen et al. (2023) found Lion at least as good as AdamW.",
    grid=grid, measure=measure, figures=figures, columns=("optimizer", "lr", "loss", "step_ms"),
    answers={"steps_to_loss": "lowest"}, whole={"optimizer": "adam"}, derived=derived, seeds=6, minutes=10,
    caveat="The loss is Adam's after two thirds of its steps, and each optimizer has its best rate, both as seed 0 has "
    "them. Muon had one search more: the rate of embeddings and norms, 0.15 of its own, was chosen by hand among four.",
)  # fmt: skip
