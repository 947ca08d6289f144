"""Training: a small model live, or a recorded run step by step."""

import secrets
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, ConfigError, did_you_mean
from ...core.registry import SUMMARIES
from ...core.tree import flatten
from ...runs.replay import spaced_steps
from ...runs.session import TrainingSession
from ...runs.settings import default_task
from ...runs.start import new_session, write_session
from ...training.optimizers import OPTIMIZERS
from ...weights.loaded_model import LoadedModel
from ..explorer import Explorer
from ..jobs import Job, StoppedError, Work
from ..offers import Offer, parted
from ..recordings import FRAMES, ROOM, LiveTraining, RecordedTraining, is_recorded, training_lock
from ..router import route
from ..state import read

QUICK: dict[str, dict[str, Any]] = {
    "majority": {},
    "counting": {},
    "sort": {"held_out": 1000},
    "copy": {"steps": 1000},
    "reverse": {"steps": 1000},
    "induction": {},
    "addition": {"batch": 64},
    "parity": {"steps": 800, "train": 4000},
    "dates": {"steps": 600, "batch": 32, "train": 4000, "held_out_each": 20, "locales": ["en", "de", "fr"]},
}
"""Tasks that are learned in about a minute or less, with the settings that make them quick."""
MOST = {"layers": 8, "width": 256, "heads": 16, "steps": 5000}
"""What a training on the page has at most: larger ones are for `glassformer train`."""
ASKED = (*MOST, "optimizer", "lr")
EVALUATIONS = 12
WAIT = 0.2


@route("trainings")
def trainings(explorer: Explorer) -> dict[str, Any]:
    """Return what can be trained here, with what settings, and the trainings that can be gone through."""
    live = {key: (history.title, not history.ended) for key, history in explorer.live_trainings.items()}
    recorded = {
        key: (offer.title, False)
        for key, offer in explorer.offers.items()
        if offer.kind in ("run", "given") and is_recorded(offer.place)
    }
    return {
        "tasks": [{"name": name, "summary": SUMMARIES[name]} for name in QUICK],
        "optimizers": list(OPTIMIZERS),
        "most": MOST,
        "courses": [{"key": key, "title": title, "live": on} for key, (title, on) in (live | recorded).items()],
    }


@route("steps")
def training_steps(explorer: Explorer, model: str) -> dict[str, Any]:
    """Return the steps of its training that a model can be shown at; none for one whose training was not recorded."""
    base = parted(model)[0]
    if base in explorer.live_trainings:
        return {"steps": sorted(explorer.live_trainings[base].seen)}
    offer = explorer.offers.get(base)
    if offer is None or offer.kind not in ("run", "given") or not is_recorded(offer.place):
        return {"steps": []}
    found = explorer.training(base)
    assert isinstance(found, RecordedTraining)
    return {"steps": found.replay.spaced(FRAMES)}


@route("task")
def task_settings(task: str) -> dict[str, Any]:
    """Return the settings that the training of a task begins with."""
    _check_task(task)
    usual = default_task(task)
    settings = {**usual.settings, **usual.recipe, **QUICK[task]}
    chosen = {setting: settings[setting] for setting in ASKED}
    return {"name": task, "architecture": usual.architecture, "settings": chosen}


def _check_task(task: str) -> None:
    if task not in QUICK:
        raise ConfigError(f"no {task[:40]!r} is trained here", hint=did_you_mean(task[:40], QUICK))


# --- a training here -------------------------------------------------------------------------------------------------


@route("train")
def train(explorer: Explorer, task: str, settings: dict[str, Any] | None = None, seed: int = 0) -> Work:
    """Begin to train a small model in memory; the job shows how it goes, and offers the model at its end."""
    _check_task(task)
    chosen = _settings(task, settings or {})
    key = f"{task}-{secrets.token_hex(4)}"
    return lambda job: _train(explorer, job, key, task, chosen, seed)


def _settings(task: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a training, checked as far as the page limits them."""
    for name, value in given.items():
        if name not in ASKED:
            raise ConfigError(f"there is no setting {name[:40]!r} here", hint=did_you_mean(name[:40], ASKED))
        if name in MOST and read(int, value, name) > MOST[name]:
            hint = f"train it by `glassformer train {task} --set {name}={value}`"
            raise ConfigError(f"{name} is {value:,}, and at most {MOST[name]:,} are trained here", hint=hint)
    settings = {**QUICK[task], **given}
    steps = settings.get("steps") or default_task(task).recipe["steps"]
    return {**settings, "eval_every": max(1, steps // EVALUATIONS)}


def _train(explorer: Explorer, job: Job, key: str, task: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    job.show(0, 0, "draws its data")
    session = new_session(task, settings=settings, seed=seed)
    history = LiveTraining(key, f"{task}, trained here", session)
    history.job = job.key
    explorer.add_training(key, history)
    try:
        while not training_lock.acquire(timeout=WAIT):
            job.show(0, history.planned, "waits for another training")
        try:
            _take_steps(session, history, job)
        finally:
            training_lock.release()
        params = session.load_params()  # those with the lowest validation loss
    except (StoppedError, CheckpointError):  # or the last ones, where none was finite
        params = session.trained.params
    finally:
        history.ended = True
    history.title = f"{task}, trained here, {session.state.step:,} steps"
    model = LoadedModel.of_task(session.model, params, session.task, source=history.title)
    explorer.add(Offer(key, history.title, "trained", ""), model)
    return history.to_dict()


def _take_steps(session: TrainingSession, history: LiveTraining, job: Job) -> None:
    """Train to the end, and keep frames on the way."""
    size = sum(leaf.nbytes for leaf in flatten(session.state.params).values())
    due = set(spaced_steps(0, history.planned, max(2, min(FRAMES, ROOM // size))))
    history.note()
    note = "takes the first step; where kernels are new, they are compiled once"
    job.show(0, history.planned, note, history.to_dict())
    for record in session.steps():
        history.lines.append(record.to_dict())
        partial = None
        if record.step in due or record.stop:
            history.note()
        if record.step in due or record.evaluation is not None or record.step % 10 == 0:
            partial = history.to_dict()
        job.show(record.step, history.planned, f"step {record.step:,} of {history.planned:,}", partial)


@route("keep")
def keep(explorer: Explorer, model: str) -> dict[str, Any]:
    """Write a model that was trained here into the folder of runs; return its new key."""
    history = explorer.live_trainings.get(model)
    if history is None or not history.ended:
        raise ConfigError(f"no training {model[:40]!r} has ended here", hint="train it again, or wait for its end")
    with history.lock:
        if history.folder is None:
            run = write_session(history.session, Path(explorer.folder) / history.task.name)
            history.folder = run.folder
    steps = history.lines[-1]["step"]
    offer = Offer(history.folder.as_posix(), f"{history.folder.name}: {history.task.name}, {steps:,} steps", "run",
                  str(history.folder))  # fmt: skip
    explorer.add(offer)
    return {"key": offer.key, "folder": str(history.folder)}


# --- a course --------------------------------------------------------------------------------------------------------


@route("course")
def course(explorer: Explorer, model: str, steps: tuple[int, ...] | None = None) -> Work:
    """Begin to compute frames of a training: of the steps that are named, or of about 30."""

    def work(job: Job) -> dict[str, Any]:
        job.show(0, 0, "opens the run")
        history = explorer.training(model)
        if isinstance(history, RecordedTraining):
            history.compute(steps, job)
        elif steps is not None:
            for step in steps:
                history.frame(step)
        return history.to_dict()

    return work


@route("course_map")
def course_map(
    explorer: Explorer, model: str, step: int, layer: int, head: int, kind: str | None = None
) -> dict[str, Any]:
    """Return who looks at whom in one head after a step of a training."""
    return explorer.training(model).attention(step, kind, layer, head)
