"""The measure of studies: a training of a task with settings, as `gf.train` does it, without a folder."""

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..api.trained_model import TrainedModel
from ..core import dispatch
from ..core.arrays import Array
from ..core.errors import CheckpointError, TrainingError
from ..core.tree import count
from ..data import Task, build_task
from ..models import Model
from ..runs.planning import Chosen, jax_execution, plan_new, plan_task
from ..runs.session import TrainingSession
from ..runs.settings import split_settings
from ..runs.start import start_session
from ..training import History
from ..training.trainable import check_freeze

WORDS = ("loss", "accuracy", "steps_taken", "parameters", "tokens", "train_seconds")
"""What `training` measures."""


def on_accelerator() -> bool:
    """Return whether the engine jax computes, for studies whose grid is larger there."""
    return dispatch.current().library == "jax"


def session_of(
    task: str, seed: int, *, data: str | None = None, build: Callable[..., Model] | None = None, **settings: Any
) -> TrainingSession:
    """Begin the training of a task's own model, changed by settings of the task, the model and the recipe.

    data    a file or folder that the task reads
    build   makes a model of another class from the config
    """
    run = plan_new(task, settings, jax_execution() if on_accelerator() else None, data=data, seed=seed)
    model = None if build is None else build(run.config)
    return start_session(replace(run, ready=run.ready._replace(model=model)))


def session_on(task: Task, seed: int, model: dict[str, Any], recipe: dict[str, Any]) -> TrainingSession:
    """Begin the training of a task that a study built, with settings of the model and of the recipe."""
    execution = jax_execution() if on_accelerator() else None
    return start_session(plan_task(task, Chosen({}, model, {**recipe, "seed": seed}, execution)))


def trained(task: str, seed: int, **settings: Any) -> TrainedModel:
    """Train a task and return the model with its history, as `gf.train(task, seed=seed, **settings)` does."""
    return _finished(session_of(task, seed, **settings))


def _finished(session: TrainingSession) -> TrainedModel:
    for _ in session.steps():
        pass
    try:
        model = session.best
    except CheckpointError:  # no evaluation gave a finite loss
        model = session.trained
    return TrainedModel.of(replace(model, metrics=session.metrics()))


def training(task: str, seed: int, **settings: Any) -> dict[str, Any]:
    """Train a task; return its results on held-out data, and what it took. A training that diverges says so.

    loss, accuracy   of the parameters that the recipe keeps, on held-out data
    steps_taken      and the `tokens` that were learned from
    parameters       of the model
    train_seconds    of all steps, evaluations left out
    """
    session = session_of(task, seed, **settings)
    parameters = count(session.model.specs())
    try:
        model = _finished(session)
    except TrainingError:
        return {"diverged": True, "steps_taken": session.state.step, "parameters": parameters}
    test, history = session.test(model.params), model.history
    return {
        "diverged": not math.isfinite(test.loss),
        "loss": test.loss,
        "accuracy": test.accuracy,
        "parameters": parameters,
        "steps_taken": len(history),
        "tokens": sum(record.tokens for record in history),
        "train_seconds": float(history.seconds.sum()),
    }


def loss_curve(task: str, seed: int, **settings: Any) -> dict[str, Any]:
    """Train a task; return the steps `at` which it was evaluated, the held-out `losses` there, and the last `loss`.

    step_ms   the median time of a step
    """
    session = session_of(task, seed, **settings)
    for _ in session.steps():
        pass
    history = History.from_metrics(session.metrics())
    losses = [round(loss, 5) for loss in history.val_loss.tolist()]
    median = 1e3 * float(np.median(history.seconds))
    curve = {"at": history.val_step.tolist(), "losses": losses, "loss": losses[-1]}
    return {"diverged": not math.isfinite(losses[-1]), **curve, "step_ms": median}


def steps_to(rows: Iterable[Mapping[str, Any]], target: float) -> Array:
    """Return after how many steps each loss curve is down at a loss, on a line between evaluations; infinite: never."""
    found = []
    for row in rows:
        curve = [(0, math.inf), *zip(row.get("at") or (), row.get("losses") or (), strict=True)]
        i = next((i for i, (_, loss) in enumerate(curve) if loss is not None and loss <= target), 0)
        (before, higher), (step, loss) = curve[i - 1], curve[i]
        back = (target - loss) / (higher - loss) * (step - before) if i > 1 else 0.0
        found.append(step - back if i else math.inf)
    return np.array(found)


def check_training(task: str, *, data: str | None = None, **settings: Any) -> None:
    """Refuse settings that a task cannot be trained with, as planning its training does."""
    of_task, of_model, of_recipe = split_settings(task, settings)
    built = _task(task, json.dumps({"data": data, **of_task}, sort_keys=True))
    run = plan_task(built, Chosen(of_task, of_model, of_recipe, jax_execution() if on_accelerator() else None))
    check_freeze(run.recipe.freeze, run.model, scan=run.execution.scan)


@functools.lru_cache(maxsize=8)
def _task(name: str, options: str) -> Task:
    """Build a task once for all points that are checked with it."""
    return build_task(name, **{"seed": 0, **json.loads(options)})
