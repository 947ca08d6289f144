"""A training run from its folder: steps, evaluations, checkpoints and metrics, with the state always at hand."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Tree
from ..config import CONFIGS, TransformerConfig, config_from_dict
from ..data import TASKS, Task, build_task
from ..errors import ConfigError, did_you_mean
from ..models import PRESETS
from ..parallel.watch import Watch
from ..tree import tree_map
from .checkpoint import BEST
from .evaluate import Evaluation, evaluate
from .execution import Execution
from .interruption import uninterrupted
from .loop import StepRecord, TrainingState, final_params, start, training_steps
from .parametrization import WHOLE, Parametrization
from .recipe import Recipe, changed_recipe
from .run import Run, create_run, open_run
from .threads import suitable_threads
from .trained import Trained

_OF_THE_DATA = ("vocab", "context", "head", "classes", "segments", "source_vocab")
"""Settings of a model that follow from what it reads and answers, whatever the preset."""


@dataclass
class Session:
    """One run as it goes on. `state` is complete after every step, so it can be saved at any moment."""

    run: Run
    task: Task
    state: TrainingState
    parametrization: Parametrization = WHOLE
    watch: Watch = field(default_factory=Watch)  # over the other processes of a run, where there are any

    def __post_init__(self) -> None:
        self.model = self.run.model
        self._unwritten: StepRecord | None = None

    def steps(self) -> Iterator[StepRecord]:
        """Train to the end, writing metrics and checkpoints on the way."""
        # From here on the state is the session's own: steps are taken in its memory.
        self.state = tree_map(_own, self.state)
        self._write_record()
        with suitable_threads(self.run.config, self.run.recipe.batch // self.run.recipe.accumulate):
            yield from self._steps(self.run.recipe)

    def _steps(self, recipe: Recipe) -> Iterator[StepRecord]:
        save_every = recipe.save_every or recipe.eval_every
        for state, record in training_steps(
            self.model,
            recipe,
            self.task.train,
            self.state,
            evaluate=self.evaluate,
            parametrization=self.parametrization,
            overwrite=True,
            keep=self._keep,
        ):
            if state is self.state:
                self._write_record()
            else:
                self.run.append(record)
                if record.is_best:
                    self.run.save_best(state)
                # Only now: a state saved after an interruption must not be ahead of metrics and best parameters.
                self.state = state
            if state.step % save_every == 0 or state.step == recipe.steps or record.stop:
                self.save()
            yield record

    def _keep(self, state: TrainingState, record: StepRecord) -> None:
        """Take over a state that was computed in the memory of the one before; its record is still to be written."""
        self.state, self._unwritten = state, record

    def _write_record(self) -> None:
        with uninterrupted():  # not once too often either
            if self._unwritten is not None:
                self.run.append(self._unwritten)
                self._unwritten = None

    def save(self) -> None:
        """Write the state as it is now."""
        self._write_record()
        self.run.save(self.state)

    def evaluate(self, params: Tree) -> Evaluation:
        """Measure parameters on all of the validation data, or the held-out data where there is none."""
        if self.task.validation is not None:
            return evaluate(self.model, params, self.task.validation, metric=self.task.metric)
        return self.test(params)

    def test(self, params: Tree) -> Evaluation:
        """Measure parameters on all of the held-out data."""
        return evaluate(self.model, params, self.task.held_out, metric=self.task.metric, groups=self.task.groups)

    @property
    def trained(self) -> Trained:
        """The model as it is now, ready to be asked; it stays so while the session goes on."""
        params = self.parametrization.effective(tree_map(_own, final_params(self.state, self.run.recipe)))
        return Trained(self.model, params, self.task)

    def load_params(self, name: str = BEST) -> Tree:
        """Return trained parameters from the folder: the best, or the latest where there is no best yet."""
        return self.run.load_params(name, parametrization=self.parametrization)


def new_session(
    task_name: str,
    folder: Path,
    *,
    data: str | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    execution: Execution | None = None,
) -> Session:
    """Start a run: the task's own model and recipe, changed by a preset and by settings of either.

    With an `execution`, it is computed by the engine jax.
    """
    if data is not None and Path(data).exists():
        data = str(Path(data).resolve())  # so that the run can be continued from any folder
    options = {"data": data, "seed": seed}
    settings = dict(settings or {})
    task_settings, model_settings, recipe_settings = sorted_settings(task_name, settings)
    task = build_task(task_name, **(options | task_settings))
    recipe = changed_recipe(task.recipe, {"seed": seed, **recipe_settings})
    config = _model_config(task, preset, {"dropout": recipe.pop("dropout"), **model_settings})
    known = {name: value for name, value in (options | task_settings).items() if value is not None}
    run = create_run(folder, task, known, config, Recipe.from_dict(recipe), execution=execution)
    return session_of(run, task)


def session_of(run: Run, task: Task, params: Tree | None = None, parametrization: Parametrization = WHOLE) -> Session:
    """Begin a session that computes a run in its own way; what is trained is drawn anew unless given."""
    if run.execution is None:
        return Session(run, task, start(run.model, run.recipe, params), parametrization)
    from .compiled_session import begun

    return begun(run, task, params, parametrization)


def resume_session(folder: str | Path) -> Session:
    """Continue a run from its latest checkpoint, from the beginning if there is none yet."""
    run = open_run(folder)
    if run.execution is not None:
        from .compiled_session import resumed

        return resumed(folder)
    task, parametrization = run.task(), run.parametrization()
    state = run.load_state()
    run.rewind_metrics(state.step)
    return Session(run, task, state, parametrization)


def sorted_settings(task_name: str, settings: dict[str, Any]) -> tuple[dict, dict, dict]:
    """Sort settings by whom they belong to: the task, the model or the recipe."""
    if task_name not in TASKS:
        raise ConfigError(f"there is no task {task_name!r}", hint=did_you_mean(task_name, TASKS))
    options = {p.name: p.default for p in inspect.signature(TASKS[task_name]).parameters.values()}
    of_task = set(options) - {"seed", "data", "lexicon"}
    of_model = {setting.name for config in CONFIGS.values() for setting in fields(config)}
    of_recipe = {setting.name for setting in fields(Recipe)} - {"seed"}
    groups: tuple[dict, dict, dict] = ({}, {}, {})
    for name, value in settings.items():
        for known, group in zip((of_task, of_model, of_recipe), groups, strict=True):
            if name in known:
                group[name] = value
                break
        else:
            known = of_task | of_model | of_recipe
            hint = f"use --{name}" if name in ("seed", "data") else did_you_mean(name, known)
            if name.startswith("lora_"):
                hint = "LoRA needs a model to start from: --from MODEL --lora"
            raise ConfigError(f"there is no setting {name!r}", hint=hint)
    for name, value in groups[0].items():
        _check_option(name, value, options[name])
    return groups


def _check_option(name: str, value: Any, default: Any) -> None:
    """Refuse a value for a task's option that is of another kind than its default."""
    words = {int: "a whole number", str: "text", tuple: 'a list, such as ["de", "en"]'}
    kind = tuple if isinstance(value, list) else type(value)
    if type(default) in words and kind is not type(default):
        raise ConfigError(f"{name} is {value!r}", hint=f"{name} takes {words[type(default)]}")


def _model_config(task: Task, preset: str | None, changes: dict[str, Any]) -> TransformerConfig:
    """Return the task's model, or a preset's with the task's vocabulary and lengths."""
    settings = {"architecture": task.architecture, **task.settings}
    if preset is not None:
        if preset not in PRESETS:
            raise ConfigError(f"there is no preset {preset!r}", hint=did_you_mean(preset, PRESETS))
        chosen = PRESETS[preset]
        if chosen["architecture"] != task.architecture:
            raise ConfigError(
                f"the architecture of {preset!r} is {chosen['architecture']!r}, "
                f"but {task.name!r} needs {task.architecture!r}",
                hint="choose another preset, or none",
            )
        left_out = {*_OF_THE_DATA, *(("head_bias", "head_scale") if "classes" in task.settings else ())}
        kept = {name: value for name, value in chosen.items() if name not in left_out}
        settings = {**kept, **{name: task.settings[name] for name in _OF_THE_DATA if name in task.settings}}
    return config_from_dict({**settings, **changes})


def _own(part: Any) -> Any:
    """Return a copy of an array; numbers pass."""
    return np.array(part) if isinstance(part, np.ndarray) else part


class Stopwatch:
    """How fast a run goes, and how long it will take."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.first = done
        self.done = done
        self.began = time.perf_counter()
        self.tokens = 0

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        self.tokens += record.tokens
        self.done = record.step

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self.began

    @property
    def tokens_per_second(self) -> float:
        """Tokens trained on per second, evaluations included in the time."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def remaining(self) -> float:
        """Seconds to go at this pace."""
        taken = self.done - self.first
        return self.seconds / max(taken, 1) * (self.total - self.done)
