"""The speed run's tricks at our size: what is each worth alone, and what are all together?"""

from typing import Any

import numpy as np

from ..core.arrays import Array
from .measures import loss_curve, steps_to
from .study import Figures, Rows, Study
from .tricks_parts import SpeedDecoder, register

MUON = {"optimizer": "muon", "lr": 0.02, "beta2": 0.95}
REST = {"activation": "relu2", "block": "zero_qk", "tied_head": False, "soft_cap": True, "values": True}
TRICKS: dict[str, dict[str, Any]] = {
    "none": {}, "ReLU²": {"activation": "relu2"}, "zero outputs": {"block": "zero_outputs"},
    "QK-norm": {"block": "qk_norm"}, "untied head": {"tied_head": False}, "soft cap": {"soft_cap": True},
    "value embeddings": {"values": True}, "Muon": MUON, "all": {**REST, **MUON}, "all but Muon": REST,
    "all but untied head": {**REST, **MUON, "tied_head": True},
}  # fmt: skip
LABELS = ("trick", "soft_cap", "values")


def grid(quick: bool) -> list[dict[str, Any]]:
    """Return the plain model, each trick alone, and all together."""
    register()
    width, layers, context, steps = (32, 2, 32, 100) if quick else (64, 4, 64, 400)
    common: dict[str, Any] = {"task": "text", "width": width, "heads": width // 16, "layers": layers}
    common |= {"context": context, "batch": 12, "steps": steps, "schedule": "constant", "warmup": 20}
    common |= {"optimizer": "adamw", "lr": 3e-3, "beta2": 0.99, "weight_decay": 0.0}
    common |= {"eval_every": steps // 20, "eval_tokens": 8192}
    plain = {"block": "speed", "activation": "gelu_tanh", "tied_head": True, "soft_cap": False, "values": False}
    return [{"trick": name, **common, **plain, **changes} for name, changes in TRICKS.items()]


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train, and return the held-out losses along the way."""
    register()
    settings = {name: value for name, value in point.items() if name not in LABELS}

    def build(config: Any) -> SpeedDecoder:
        return SpeedDecoder(config, soft_cap=point["soft_cap"], values=point["values"])

    return loss_curve(seed=seed, build=build, **settings)


def compared(rows: Rows) -> tuple[float, dict[str, Array]]:
    """Return the plain model's loss after three quarters of its steps, and the steps to it; infinite: never."""
    plain = [row["losses"] for row in rows.where(trick="none") if not row["diverged"]]
    target = float(np.mean([losses[3 * len(losses) // 4] for losses in plain])) if plain else 0.0
    return target, {name: steps_to(rows.where(trick=name), target) for name in rows.values("trick")}


def derived(rows: Rows) -> Rows:
    """Return the steps to the loss in each run, and the time that they take."""
    target, _ = compared(rows)
    steps = steps_to(rows, target).tolist()
    return Rows(
        {
            "trick": row["trick"],
            "seed": row["seed"],
            "steps_to_loss": one,
            "seconds_to_loss": one * row["step_ms"] / 1e3,
        }
        for row, one in zip(rows, steps, strict=True)
    )


def figures(rows: Rows) -> Figures:
    """Draw each trick's steps as a share of the plain model's, every seed a dot, and the losses."""
    from ..plots import style

    target, taken = compared(rows)
    (figure, (left, right)), theme = style.row(2, 4.5, 4.2), style.colors()
    names = [name for name in taken if name != "none"]
    plain = np.minimum(taken["none"], rows[0]["steps"]).mean()
    for place, name in enumerate(names):
        shares = np.minimum(taken[name], rows[0]["steps"]) / plain
        for marker, some in (("o", np.isfinite(taken[name])), (">", np.isinf(taken[name]))):
            left.plot(shares[some], np.full(some.sum(), place), marker, color=theme.blue, alpha=0.6)
    left.axvline(1.0, color=theme.quiet, lw=0.8)
    left.set(xlabel=f"steps to a loss of {target:.3f}, plain model = 1", yticks=range(len(names)), yticklabels=names)
    left.invert_yaxis()
    for color, name in zip(theme.series, ("none", "Muon", "all", "all but Muon", "all but untied head"), strict=False):
        runs = [row for row in rows.where(trick=name) if not row["diverged"]]
        if runs:
            title = "plain model" if name == "none" else name
            style.band(right, runs[0]["at"], [row["losses"] for row in runs], color, title)
    right.set(xlabel="step", ylabel="held-out loss", ylim=(None, 3.2))
    right.legend()
    words = "steps to the plain model's loss, a dot for each seed, an arrow where it takes more; losses and their range"
    return {"tricks": style.titled(figure, "What the tricks of the speed run are worth", words)}


STUDY = Study(
    name="tricks",
    question="What are the tricks of the NanoGPT speed run worth at our size, each alone and all together?",
    published="The NanoGPT speed run of Jordan et al. (2024) trains GPT-2 small to the same loss several times faster "
    "than at first; its records add these tricks one after the other at 124 million parameters.",
    grid=grid, measure=measure, figures=figures, columns=("trick", "loss", "step_ms"), labels=LABELS, minutes=9,
    answers={"steps_to_loss": "lowest", "seconds_to_loss": "lowest"}, whole={"trick": "none"}, derived=derived,
    caveat="The loss is the plain model's after three quarters of its steps. Leaving out the untied head was added "
    "after a trial with one seed had shown that it harms; no trick but Muon has a learning rate of its own. Times are "
    "those of blocks that run as they are written; kernels make the built-in block faster.",
)  # fmt: skip
