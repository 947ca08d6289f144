"""NaN, infinity or nonsense in a gradient, a loss, a weight, a batch or a checkpoint: no weight follows it.

The step is refused by its number and the weights stay as they were, bit for bit; where nothing can be done, the run
ends with an error, and what it saves is finite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.core.dispatch import use_engine
from glassformer.core.errors import GlassformerError, TrainingError
from glassformer.core.tree import flatten, tree_map
from glassformer.runs.session import TrainingSession
from glassformer.runs.start import resume_session
from glassformer.training import all_finite, list_checkpoints, load_checkpoint, save_checkpoint

from . import forks  # noqa: F401  the tests' modules can be imported from now on
from .trial import Trial, demand

from runs import are_same, tiny_session  # isort: skip

PLAN = {"steps": 8, "eval_every": 4, "save_every": 2, "ema": 0.9}
VALUES = (np.nan, np.inf, -np.inf)


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Poison one step of a small run."""
    rng = random.Random(seed)
    with use_engine(rng.choice(("numpy", "numpy", "cpu"))):
        session = tiny_session(rng.choice(("majority", "lines")), own / "run", **PLAN)
        POISONS[TRIAL.kind(seed)](session, rng)
    for name in list_checkpoints(session.run.folder):
        found = load_checkpoint(session.run.folder, name)
        demand(all_finite(found.arrays), f"the checkpoint {name} of step {found.meta['step']} is not finite")


def _somewhere(tree: Any, rng: random.Random) -> tuple[str, np.ndarray, tuple[int, ...]]:
    """Return an array of a tree and a place in it, its name first."""
    leaves = {name: leaf for name, leaf in flatten(tree).items() if leaf.size and leaf.dtype.kind == "f"}
    name = rng.choice(sorted(leaves))
    return name, leaves[name], tuple(rng.randrange(size) for size in leaves[name].shape)


def _kept(session: TrainingSession) -> Any:
    return tree_map(np.array, {"params": session.state.params, "optimizer": session.state.optimizer})


def _refuses(session: TrainingSession, steps: Iterator[Any], poisoned: int) -> None:
    """Go on to the end; lose the case unless the poisoned step alone was refused, and nothing moved in it."""
    before = _kept(session)
    for record in steps:
        if record.step == poisoned:
            demand(record.refused, f"step {poisoned} was poisoned and not refused")
            demand(are_same(_kept(session), before), f"step {poisoned} was refused, and yet something moved")
        else:
            demand(not record.refused, f"step {record.step} was refused")
        before = _kept(session)
    demand(session.state.step == PLAN["steps"], f"the run ended after step {session.state.step}")


class _Poisoned:
    """A model whose loss and gradients are changed on one call."""

    def __init__(self, model: Any, call: int, change: Callable[[Any, Any], Any]) -> None:
        self.model, self.call, self.change, self.calls = model, call, change, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def loss_and_grads(self, *args: Any, **settings: Any) -> Any:
        self.calls += 1
        found = self.model.loss_and_grads(*args, **settings)
        return self.change(*found) if self.calls == self.call else found


def _gradient(session: TrainingSession, rng: random.Random) -> None:
    value, step = rng.choice(VALUES), rng.randrange(1, PLAN["steps"] + 1)

    def change(loss: Any, grads: Any) -> Any:
        grads = tree_map(np.array, grads)
        _, leaf, place = _somewhere(grads, rng)
        leaf[place] = value
        return loss, grads

    session.trainer.model = _Poisoned(session.model, step, change)
    _refuses(session, session.steps(), step)


def _loss(session: TrainingSession, rng: random.Random) -> None:
    value, step = rng.choice(VALUES), rng.randrange(1, PLAN["steps"] + 1)
    session.trainer.model = _Poisoned(session.model, step, lambda loss, grads: (np.asarray(value, loss.dtype), grads))
    _refuses(session, session.steps(), step)


def _weight(session: TrainingSession, rng: random.Random) -> None:
    """Spoil a weight in memory, as a bad chip would: steps are refused, or what came of them is not saved."""
    step, steps = rng.randrange(1, PLAN["steps"]), session.steps()
    for record in steps:
        if record.step == step:
            break
    _, leaf, place = _somewhere(session.state.params, rng)
    leaf[place] = rng.choice(VALUES)
    try:
        for _ in steps:
            pass
    except TrainingError as error:
        demand("step" in str(error), f"the error names no step: {error}")
        return
    demand(False, "the run came to its end with a weight that is not finite")


def _batch(session: TrainingSession, rng: random.Random) -> None:
    """Put an id that no vocabulary has into a batch."""
    step, draw = rng.randrange(PLAN["steps"]), session.trainer.batch
    wrong = rng.choice((-1, -(2**31), 10**6, 2**31 - 1))

    def batch(data: Any, number: int) -> Any:
        found = draw(data, number)
        if number != step:
            return found
        part = rng.choice(("tokens", "targets"))
        ids = np.array(getattr(found, part))
        ids[tuple(rng.randrange(size) for size in ids.shape)] = wrong
        return found._replace(**{part: ids})

    session.trainer.batch = batch
    before = _kept(session)
    try:
        for _ in session.steps():
            before = _kept(session)
    except GlassformerError:
        demand(are_same(_kept(session), before), "the batch was refused, and yet something moved")
        return
    demand(wrong == -1, "a batch with an id that does not exist was trained on")  # −1 asks for nothing


def _checkpoint(session: TrainingSession, rng: random.Random) -> None:
    """Write a checkpoint that is whole, by its checksum, and yet holds numbers that are none."""
    for record in session.steps():
        if record.step == 4:
            break
    folder = session.run.folder
    good = load_checkpoint(folder)
    arrays = {name: np.array(array) for name, array in good.arrays.items()}
    _, leaf, place = _somewhere(arrays, rng)
    leaf[place] = rng.choice(VALUES)
    save_checkpoint(folder, "latest", arrays, good.meta)
    try:
        resumed = resume_session(folder)
    except GlassformerError:
        save_checkpoint(folder, "latest", good.arrays, good.meta)
        return
    try:
        for record in resumed.steps():
            demand(record.refused, f"step {record.step} was taken from a checkpoint that is not finite")
    except TrainingError as error:
        demand("step" in str(error), f"the error names no step: {error}")


POISONS: dict[str, Callable[[TrainingSession, random.Random], None]] = {
    "gradient": _gradient,
    "loss": _loss,
    "weight": _weight,
    "batch": _batch,
    "checkpoint": _checkpoint,
}

TRIAL = Trial(
    name="poison",
    title="NaN, infinity or nonsense in gradients, losses, weights, batches, checkpoints",
    kinds=tuple(POISONS),
    full=2_000,
    quick=10,
    prepare=lambda shared: None,
    attempt=attempt,
    limit=300.0,
)
