"""Induction: how a model of two layers learns to continue what repeats itself."""

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..data.arrays import array_task
from ..data.examples import Examples
from ..interpret import ablate_heads, detect_heads, watch
from ..models import Batch
from ..ops.loss import IGNORE
from ..progress import plural
from .measures import session_on
from .study import Figures, Rows, Study

SYMBOLS, LENGTH, HEADS = 32, 32, 4
KINDS = {"previous": ("previous token", 0), "induction": ("induction", -1)}  # by the detectors' names, and the layer
SIZES = {"vocab": SYMBOLS, "context": LENGTH, "width": 64, "heads": HEADS, "tied_head": False}
MODEL = {**SIZES, "block": "attention_only", "positions": "rotary"}
RECIPE = {"batch": 64, "lr": 2e-3, "warmup": 100, "weight_decay": 0.1, "schedule": "constant", "eval_every": 10**6}


def _grid(quick: bool) -> list[dict[str, Any]]:
    return [{"layers": layers, "steps": 400 if quick else 1000, "looks": 8 if quick else 40} for layers in (1, 2)]


def repeated(count: int, rng: np.random.Generator) -> tuple[Examples, Array]:
    """Return sequences of 8 to 16 different symbols that repeat, and which targets repeat something (count, LENGTH)."""
    periods = rng.integers(LENGTH // 4, LENGTH // 2 + 1, size=(count, 1))
    orders = rng.permuted(np.tile(np.arange(SYMBOLS), (count, 1)), axis=1)
    places = np.arange(LENGTH + 1)
    rows = np.take_along_axis(orders, places % periods, axis=1)
    return Examples(Batch(rows[:, :-1].copy(), rows[:, 1:].copy())), places[1:] > periods


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train; look at losses and heads on the way; at the end, silence every head, one at a time."""
    rng, layers = np.random.default_rng(seed), point["layers"]
    train, (test, again) = repeated(20_000, rng)[0], repeated(256, rng)
    targets: Any = test.rows.targets
    parts = [Batch(test.rows.tokens, np.where(part, targets, IGNORE)) for part in (~again, again)]
    recipe = {**RECIPE, "steps": point["steps"]}
    session = session_on(array_task(train, validation=test), seed, {**MODEL, "layers": layers}, recipe)
    model, seen = session.model, []

    def look(step: int) -> list[Array]:
        params = session.now()
        found = detect_heads(model, params)["decoder"].scores
        scores = [found[kind][layer] for kind, layer in KINDS.values()]
        seen.append([step, *(float(model.loss(params, part)) for part in parts), *(float(s.max()) for s in scores)])
        return scores

    scores = look(0)
    for record in session.steps():
        if record.step % (point["steps"] // point["looks"]) == 0:
            scores = look(record.step)
    harm = np.asarray(ablate_heads(watch(model, session.now(), parts[1]), "mean").loss)
    heads = {name: (KINDS[name][1] % layers) * HEADS + int(s.argmax()) for name, s in zip(KINDS, scores, strict=True)}
    step, new, repeat, previous, induction = map(list, zip(*seen, strict=True))
    gain = np.subtract(new, repeat)
    return {
        "gain": float(gain[-1]),
        "loss_falls_at": _halfway(step, gain),
        "heads_rise_at": _halfway(step, induction),
        **{f"{name}_score": float(s.max()) for name, s in zip(KINDS, scores, strict=True)},
        **{f"without_{name}": float(harm[head]) for name, head in heads.items()},
        "without_another": float(np.mean(np.delete(harm, list(heads.values())))),
        "step": step, "new_loss": new, "repeated_loss": repeat, "previous": previous, "induction": induction,
    }  # fmt: skip


def _halfway(steps: list[int], values: Any) -> int:
    """Return the first step at which values are past the middle between their lowest and their highest."""
    return int(steps[int(np.argmax(np.asarray(values) > (np.min(values) + np.max(values)) / 2))])


def figures(rows: Rows) -> Figures:
    """Draw losses and scores by step, for every seed."""
    from ..plots import style

    color, (figure, (left, right)) = style.colors(), style.row(2, 4.0, 3.2)
    for layers, look in ((2, "-"), (1, ":")):
        for i, row in enumerate(rows.where(layers=layers)):
            gain, label = np.subtract(row["repeated_loss"], row["new_loss"]), None if i else plural(layers, "layer")
            left.plot(row["step"], gain, look, color=color.blue, label=label)
    for (name, (title, _)), tint in zip(KINDS.items(), (color.green, color.vermilion), strict=True):
        for i, row in enumerate(rows.where(layers=2)):
            right.plot(row["step"], row[name], color=tint, label=None if i else title)
    left.set(xlabel="step", ylabel="loss, repeated − new symbols", title="one layer and two")
    right.set(xlabel="step", ylabel="attention", ylim=(0, 1), title="the heads of two layers")
    for ax in (left, right):
        ax.legend()
    words = "how much easier repeated symbols are, and the strongest head of each kind; a curve for each seed"
    return {"bump": style.titled(figure, "Copying arises together with induction heads", words)}


STUDY = Study(
    name="induction", question="How does copying arise?",
    published="Attention-only models form induction heads in a short phase of training, in which they learn to use "
    "their context; one layer is not enough (Olsson et al. 2022, In-context Learning and Induction Heads).",
    grid=_grid, measure=measure, figures=figures, minutes=2,
    answers={"gain": "highest"}, whole={"layers": 1},
    caveat="gain: nats by which repeated symbols are easier than new ones.",
    columns=("layers", "gain", "loss_falls_at", "heads_rise_at", *(f"without_{one}" for one in (*KINDS, "another"))),
)  # fmt: skip
