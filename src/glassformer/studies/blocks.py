"""The needs of a classifier: one block or two, the mean or a CLS vector, one head or four; and its heads."""

import itertools
from typing import Any

import numpy as np

from ..core.tree import count
from ..data.tasks.strings import LENGTH, TOKENS
from ..models import Batch
from ..progress import plural
from .measures import trained
from .study import Figures, Point, Rows, Study

SPECIAL = 0.15
"""A head is special that gives this much more attention to a kind of token than a head that looks at all alike."""


def grid(quick: bool) -> list[Point]:
    """Return all combinations of blocks, pooling and heads, trained on a few sequences and on many."""
    steps, sizes = (150, (50,)) if quick else (600, (50, 1600))
    return [{"task": "majority", "steps": steps, "eval_every": steps, "train": train, "layers": layers,
             "pooling": pooling, "heads": heads}
            for train in sizes for layers in (1, 2) for pooling in ("mean", "cls") for heads in (1, 4)]  # fmt: skip


def measure(point: Point, seed: int) -> dict[str, Any]:
    """Train; classify all inputs there are; and measure what every head looks at, averaged over them.

    equal      share of attention on tokens equal to the one that looks, above that of a head that looks at all alike
    favorite   share of attention on the kind of token that the head likes most, above the same
    """
    model = trained(seed=seed, **point)
    every = np.array(list(itertools.product(range(len(TOKENS)), repeat=LENGTH)))
    counts = np.stack([(every == kind).sum(axis=1) for kind in range(len(TOKENS))], axis=1)
    logits, saved = model.model.predict(model.params, Batch(every))
    right = np.argmax(logits, axis=-1) == np.argmax(counts, axis=1)  # of equals, both take the first
    has_cls, equal, favorite = point["pooling"] == "cls", [], []
    same = every[:, :, None] == every[:, None, :]
    for number, block in enumerate(saved["blocks"]):
        weights = np.asarray(block["attention"].weights)[..., has_cls:]  # (B, H, T, S) on the tokens
        weights = weights / weights.sum(axis=-1, keepdims=True)
        read = weights[:, :, :1] if has_cls and number == point["layers"] - 1 else weights  # others are not read
        for head in range(point["heads"]):
            equal.append(float(np.mean(np.sum(weights[:, head, has_cls:] * same, axis=-1)) - same.mean()))
            liked = [np.mean(np.sum(read[:, head] * (every == kind)[:, None], axis=-1)) for kind in range(len(TOKENS))]
            favorite.append(float(max(liked) - 1 / len(TOKENS)))
    return {"accuracy": float(right.mean()), "parameters": count(model.params), "equal": equal, "favorite": favorite,
            "specialized": sum(max(pair) > SPECIAL for pair in zip(equal, favorite, strict=True))}  # fmt: skip


def figures(rows: Rows) -> Figures:
    """Draw the accuracy of each classifier, and every head by what it looks at."""
    from ..plots import style

    figure, (left, right) = style.row(2, 4.2, 3.4)
    for train, tint in zip(rows.values("train"), (style.colors().orange, style.colors().green), strict=False):
        found = rows.where(train=train).mean("accuracy", by=("layers", "pooling", "heads"))
        for place, one in enumerate(found.values()):
            label = f"{train:,}" if not place else None
            style.interval(left, one.mean, -place, one.low, one.high, tint, label)
        labels = [f"{plural(layers, 'block')}, {pooling}, {plural(heads, 'head')}" for layers, pooling, heads in found]
        left.set_yticks([-place for place in range(len(found))], labels)
    left.set_xlabel("right, of all inputs")
    left.legend(title="sequences", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    for pooling, tint in (("mean", style.colors().blue), ("cls", style.colors().vermilion)):
        own = rows.where(pooling=pooling)
        points = [np.concatenate([row[name] for row in own]) for name in ("equal", "favorite")]
        right.plot(*points, "o", color=tint, alpha=0.6, label=pooling)
    right.set(xlabel="attention to equal tokens", ylabel="attention to one kind of token")
    right.locator_params(axis="x", nbins=5)
    right.legend(title="pooling")
    words = "accuracy with its range over seeds; and each head, a dot, above a head that looks at all alike"
    return {"blocks": style.titled(figure, "Blocks, pooling and heads", words)}


STUDY = Study(
    name="blocks",
    question="One block or two, the mean or a CLS vector, one head or many: what does a classifier need?",
    published="Michel et al. (2019) remove most heads of trained models with little loss; Voita et al. (2019) find that"
    " the heads that stay are specialized.",
    grid=grid, measure=measure, figures=figures, minutes=2,
    answers={"accuracy": "highest"}, whole={"layers": 1, "pooling": "mean", "heads": 1}, by=("train",),
    columns=("train", "layers", "pooling", "heads", "accuracy", "parameters", "specialized"),
)  # fmt: skip
