"""The worth of each part of a Transformer: the same training with one part removed at a time."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.errors import TrainingError
from ..core.tree import count
from ..layers import Block, register_block
from ..models import Batch
from ..weights.loaded_model import LoadedModel
from .measures import session_of, trained
from .study import Figures, Point, Rows, Study

FULL, MASK = "nothing", "causal mask"
REMOVED: dict[str, dict[str, Any]] = {
    FULL: {}, "residuals": {"block": "no_residual"}, "norms": {"norm": "none"}, "positions": {"positions": "none"},
    "all heads but one": {"heads": 1}, "attention": {"block": "feed_forward_only"},
    "feed-forward": {"block": "attention_only"}, "√d scaling": {"scale_scores": False},
    MASK: {"block": "no_causal_mask"},
}  # fmt: skip
MODEL = {"positions": "learned", "heads": 4, "scale_scores": True, "norm": "layer", "block": "residual"}
SIZES: dict[str, dict[str, int]] = {
    "majority": {"layers": 2, "steps": 600},
    "text": {"layers": 3, "width": 64, "steps": 600, "eval_every": 300, "eval_tokens": 8192},
    "reverse": {"layers": 3, "width": 48, "batch": 32, "steps": 500, "eval_every": 250},
}
QUICK = {"steps": 100, "width": 32, "layers": 2, "eval_every": 50}
EXAMPLES = {"majority": 400, "text": 64, "reverse": 500}


@dataclass(frozen=True)
class NoCausalMask(Block):
    """Every token sees all others. What it is changes with what follows, so it takes no cache."""

    def __post_init__(self) -> None:
        attention = replace(self.attention, pattern=replace(self.attention.pattern, causal=False))
        object.__setattr__(self, "attention", attention)

    def forward(self, params: Tree, x: Array, memory: Any = None, bias: Any = None, *, mask: Any = None,  # type: ignore[override]
                memory_mask: Any = None, rotation: Any = None, key: Any = None) -> tuple[Array, Tree]:  # fmt: skip
        given = {"mask": mask, "memory_mask": memory_mask, "rotation": rotation, "key": key}
        return super().forward(params, x, memory, bias, **given)


def grid(quick: bool) -> list[Point]:
    """Return every task with every part that it has removed; only decoders have a causal mask."""
    register_block("no_causal_mask", NoCausalMask)
    sizes = {task: {**own, **(QUICK if quick else {})} for task, own in SIZES.items()}
    return [{"task": task, "part": part, **sizes[task], **MODEL, **change}
            for task in sizes for part, change in REMOVED.items() if (task, part) != ("majority", MASK)]  # fmt: skip


def measure(point: Point, seed: int) -> dict[str, Any]:
    """Train without the part; judge the model from left to right: at each token it reads what came before alone."""
    register_block("no_causal_mask", NoCausalMask)
    task, part = point["task"], point["part"]
    settings = {name: value for name, value in point.items() if name != "part"}
    parameters = count(session_of(seed=seed, **settings).model.specs())
    try:
        model = trained(seed=seed, **settings)
    except TrainingError:
        return {"diverged": True, "parameters": parameters}
    assert model.task is not None
    batch = next(iter(model.task.held_out.batches(EXAMPLES[task])))
    logits = read_left_to_right(model, batch) if part == MASK else model.model.predict(model.params, batch)[0]
    right = (np.argmax(logits, axis=-1) == batch.targets) | (batch.targets == ops.IGNORE)
    return {
        "loss": float(ops.cross_entropy(logits, batch.targets)[0]),
        "accuracy": float(np.mean(right.all(axis=-1) if task == "reverse" else right)),
        "training_loss": float(np.mean(model.history.loss[-25:])),
        "parameters": parameters,
    }


def read_left_to_right(model: LoadedModel, batch: Batch) -> Array:
    """Return the logits (B, T, V) of a model that has read tokens 0 … t when it predicts the next one."""
    mask: Any = batch.mask if batch.mask is not None else np.ones(batch.tokens.shape, dtype=bool)
    ends = range(1, batch.tokens.shape[1] + 1)
    read = (model.model.forward(model.params, batch.tokens[:, :n], mask=mask[:, :n])[0] for n in ends)
    return np.stack([logits[:, -1] for logits in read], axis=1)


def figures(rows: Rows) -> Figures:
    """Draw the loss without each part, one panel for each task."""
    from ..plots import style

    tasks = rows.values("task")
    figure, axes = style.row(len(tasks), 3.6, 3.4)
    for ax, task in zip(axes, tasks, strict=True):
        found = rows.where(task=task).mean("loss", by="part")
        for place, part in enumerate(REMOVED):
            if one := found.get(part):
                style.interval(ax, one.mean, -place, one.low, one.high, style.colors().blue)
        if MASK in found:
            seen = rows.where(task=task, part=MASK).mean("training_loss")[()].mean
            ax.plot(seen, 1 - len(REMOVED), "o", color=style.colors().vermilion, fillstyle="none")
        ax.axvline(found[FULL].mean, color=style.colors().edge, linewidth=1)
        shown = REMOVED if ax is axes[0] else [""] * len(REMOVED)
        ax.set_yticks([-place for place in range(len(REMOVED))], shown)
        ax.set(xlabel="held-out loss", title=task, ylim=(0.5 - len(REMOVED), 0.5))
    words = (
        "mean and range over seeds of the held-out loss, read from left to right; the line is the model with all"
        " parts, the open circle the loss that training without the causal mask shows"
    )
    return {"parts": style.titled(figure, "What is lost without each part", words)}


STUDY = Study(
    name="parts",
    question="What are residuals, norms, positions, heads, feed-forward layers, √d and the causal mask worth?",
    published="Vaswani et al. (2017) vary heads, key width and positions on translation, and find one head worse than"
    " eight; Dong et al. (2021) show that attention without residuals and feed-forward layers makes all tokens alike.",
    grid=grid, measure=measure, figures=figures, labels=("part",), minutes=8,
    answers={"loss": "lowest"}, whole={"part": FULL}, by=("task",),
    caveat="Every model was trained with the recipe of the full one; none was tuned for what it lacks.",
    columns=("task", "part", "loss", "accuracy", "training_loss", "parameters"),
)  # fmt: skip
