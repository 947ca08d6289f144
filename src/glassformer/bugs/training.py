"""Training with a bug: loss curves over some seeds, beside those without it.

`benchmarks/museum.py` writes `curves.json`, which comes with the package.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import config_from_dict
from ..core.dispatch import use_engine
from ..data import build_task
from ..data.examples import Dataset, Examples
from ..models import Batch, build
from ..ops import IGNORE
from ..training.recipe import Recipe
from ..training.trainer import Trainer

CURVES = Path(__file__).parent / "curves.json"
STEPS = 300
EVERY = 10

SMALL: dict[str, Any] = {"width": 32, "heads": 4, "layers": 2, "feed_forward": 64}
SETUPS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "text": ("text", {}, {}),
    "grouped": ("text", {"kv_heads": 2}, {}),
    "relu": ("text", {"activation": "relu"}, {}),
    "gelu": ("text", {"activation": "gelu"}, {}),
    "post": ("text", {"norm_position": "post"}, {}),
    "rotary": ("text", {"positions": "rotary"}, {}),
    "interleaved": ("text", {"positions": "rotary", "rotary_pairing": "interleaved"}, {}),
    "sinusoidal": ("text", {"positions": "sinusoidal"}, {}),
    "dropout": ("text", {}, {"dropout": 0.2}),
    "decayed": ("text", {}, {"weight_decay": 1.0}),
    "unwarmed": ("text", {}, {"warmup": 0}),
    "majority": ("majority", {}, {}),
    "reversal": ("reversal", {}, {}),
    "accumulated": ("reverse", {}, {"accumulate": 4, "clip": 0.1}),
}
"""What a bug is trained on: a task, and changes of its model and of its recipe."""


class Curves(NamedTuple):
    """The training loss of some seeds, (seeds, points): means of `EVERY` steps; NaN where it was not finite."""

    loss: np.ndarray

    @property
    def last(self) -> np.ndarray:
        """The loss of each seed at the end."""
        return self.loss[:, -3:].mean(axis=1)

    def effect(self, right: "Curves") -> str:
        """Return in words how much of a bug training shows, beside the curves without it.

        "diverges", "too good", "stuck" (less than half of the way down), "worse" (beyond what seeds differ by), or
        "silent".
        """
        if not np.isfinite(self.last).all():
            return "diverges"
        start, end, found = right.loss[:, 0].mean(), right.last.mean(), self.last.mean()
        margin = max(np.ptp(right.last), 0.02 * (start - end))
        if found < end - margin:
            return "too good"
        if found > (start + end) / 2:
            return "stuck"
        return "worse" if found > end + margin else "silent"


Material = tuple[dict[str, Any], dict[str, Any], Any]
"""What a setup is trained on: the settings of the model, those of the recipe, and the examples."""


@cache
def _material(name: str) -> Material:
    if name == "reversal":
        return _reversal()
    task = build_task(name, **({"context": 32} if name == "text" else {}))
    return {"architecture": task.architecture, **task.settings}, dict(task.recipe), task.train


def _reversal() -> Material:
    """Digits to be written backward by an encoder-decoder; sources of different lengths are padded."""
    rng, count, longest = np.random.default_rng(0), 4_000, 8
    lengths = rng.integers(3, longest + 1, size=count)
    digits, place = rng.integers(2, 12, size=(count, longest)), np.arange(longest)
    source_mask = place < lengths[:, None]
    source = np.where(source_mask, digits, 0)
    backward = np.take_along_axis(digits, np.maximum(lengths[:, None] - 1 - place, 0), axis=1)
    targets = np.where(source_mask, backward, IGNORE)
    tokens = np.concatenate([np.ones((count, 1), dtype=np.int64), np.where(source_mask, backward, 0)[:, :-1]], axis=1)
    settings = {"architecture": "encoder-decoder", "vocab": 12, "context": longest}
    recipe = {"optimizer": "adamw", "clip": 1.0, "dropout": 0.0}
    return settings, recipe, Examples(Batch(tokens, targets, None, source, source_mask))


def train_curves(setup: str, seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS) -> Curves:
    """Train a small model for each seed, as the code stands now, on the engine numpy."""
    name, model, changes = SETUPS[setup]
    of_model, of_recipe, train = _material(name)
    found = []
    for seed in seeds:
        given = {**of_recipe, "steps": steps, "batch": 16, "warmup": 20, "lr": 3e-3, **changes, "seed": seed}
        dropout = given.pop("dropout")
        recipe = Recipe.from_dict(given)
        config = config_from_dict({**of_model, **SMALL, **model})
        with use_engine("numpy"):
            found.append(_losses(Trainer(build(config, dropout=dropout), recipe), train))
    return Curves(np.array(found))


def _losses(trainer: Trainer, data: Dataset) -> list[float]:
    recipe, state, losses = trainer.recipe, trainer.first(), []
    schedule = recipe.build_schedule()
    for step in range(recipe.steps):
        state, figures = trainer.step(state, trainer.batch(data, step), schedule(step))
        loss, _, moved = figures
        losses.append(float(loss) if moved else float("nan"))
        state = state._replace(step=step + 1)
    return np.reshape(losses, (-1, EVERY)).mean(axis=1).tolist()


@cache
def _kept() -> dict[str, dict[str, Any]]:
    return json.loads(CURVES.read_text(encoding="utf-8"))


def kept_curves(name: str) -> Curves:
    """Return the curves with a bug that come with the package."""
    return Curves(np.array(_kept()["wrong"][name], dtype=np.float64))


def right_curves(setup: str) -> Curves:
    """Return the curves without a bug that come with the package."""
    return Curves(np.array(_kept()["right"][setup], dtype=np.float64))


def check_seconds() -> dict[str, float]:
    """Return how long the check of each exhibit took when the curves were drawn."""
    return dict(_kept()["seconds"])
