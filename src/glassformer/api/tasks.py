"""Data in any form as a task: a name, a file, a table, arrays, a Dataset, or a task itself."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import CONFIGS, EncoderConfig, TransformerConfig
from ..core.errors import ConfigError, DataError, did_you_mean
from ..core.execution import AMONG_MODEL_SETTINGS
from ..core.registry import find
from ..core.settings import check_known, setting_names
from ..data import TASKS, Task
from ..data.arrays import array_task
from ..data.examples import Dataset, Windows
from ..data.tables import is_rows
from ..data.tasks import suited_task
from ..data.tasks.classify import LONGEST, labeled_examples
from ..runs.custom_files import takes_lexicon
from ..runs.planning import check_fit, task_for, task_options
from ..runs.provenance import stable_data
from ..runs.settings import split_settings
from ..training import Evaluation
from ..training.evaluate import compared, evaluate, score
from ..training.recipe import Recipe
from ..weights.loaded_model import LoadedModel

Settings = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Of the task, of the model and of the recipe."""


class Named(NamedTuple):
    """Data that has a task: its name, and the path or the rows that it reads."""

    task: str
    data: Any = None

    def origin(self, options: dict[str, Any], **more: Any) -> dict[str, Any] | None:
        """Return what builds the task again; None for rows, which are nowhere but in this program."""
        return None if is_rows(self.data) else {"name": self.task, "options": options, **more}


def named_data(data: Any, settings: Mapping[str, Any] | None = None) -> Named | None:
    """Return the task that a name means, or the one that suits a file or rows; None for data of another form.

    What builds a task, such as `gf.data.TASKS["reverse"]`, goes by its name. The `settings` may name columns.
    """
    if isinstance(data, Named):
        return data
    name = next((name for name, builder in TASKS.items() if builder is data), None)
    if name is not None:
        return Named(name)
    if is_rows(data):
        return Named(suited_task(data, settings or {}), data)
    if not isinstance(data, str | os.PathLike):
        return None
    if isinstance(data, str) and data in TASKS:
        return Named(data)
    if Path(data).exists():
        path = stable_data(os.fspath(data))
        return Named(suited_task(path, settings or {}), path)
    name = os.fspath(data)
    hint = "check the path" if Path(name).suffix or os.sep in name else did_you_mean(name, TASKS)
    raise DataError(f"there is no task and no file {name!r}", hint=hint)


def sorted_for(data: Any, settings: Mapping[str, Any]) -> Settings:
    """Sort settings by whom they belong to; data that has no name has no settings of its own."""
    for name, value in settings.items():
        if name.startswith("lora_"):
            hint = "pass lora=8, or lora=gf.training.LoRA(rank=8, alpha=16.0)"
            raise ConfigError(f"there is no setting {name!r}", hint=hint)
        if name == "labels":
            raise ConfigError("there is no setting 'labels'", hint=f"name the column of the labels by label={value!r}")
    named = named_data(data)
    if named is not None:
        return split_settings(named[0], settings)
    of_model = {name for config in CONFIGS.values() for name in setting_names(config)} | set(AMONG_MODEL_SETTINGS)
    of_recipe = set(setting_names(Recipe)) - {"seed"}
    for name in settings:
        check_known("there is no setting", name, of_model | of_recipe)
    model = {name: value for name, value in settings.items() if name in of_model}
    return {}, model, {name: value for name, value in settings.items() if name not in of_model}


def tuning_task(
    data: Any,
    model: LoadedModel,
    source: str,
    config: TransformerConfig,
    options: dict[str, Any],
    validation: Any = None,
) -> tuple[Task, dict[str, Any] | None]:
    """Return the task for a model that exists, with its vocabulary, and the options that would build it again."""
    named, origin = named_data(data, options), None
    if named is not None:
        name, path = named
        given = {**options, "data": path, **task_options(name, config, options)}
        origin = named.origin(known(given), lexicon=takes_lexicon(name))
        task = task_for(name, source, model, given)
    elif isinstance(data, Task):
        task = data
    else:
        task = _of_arrays(data, model, config, validation, options.get("seed", 0))
    return task, origin


def evaluated(model: LoadedModel, data: Any, options: dict[str, Any]) -> Evaluation:
    """Measure a model on data, or on the held-out data of its own task; see `TrainedModel.evaluate`."""
    if data is None and options:
        fact = f"{next(iter(options))} is an option of a task, and none is named"
        raise ConfigError(fact, hint="name the task: model.evaluate(task, …)")
    if is_table_of(model, data) and not options:
        metric, [part], _ = file_parts(model, data)
        return evaluate(model.model, model.params, part, metric=metric)
    task = model.task if data is None else _evaluation_task(model, data, options)
    if task is None:
        hint = "pass some: model.evaluate(data); a pickled model keeps data that has a name, or is of arrays"
        raise ConfigError("this model has no data of its own", hint=hint)
    settings: dict[str, Any] = {"metric": task.metric, "groups": task.groups}
    pair = None if model.loss == "cross_entropy" else find("loss", model.loss)
    settings["scored"] = partial(score, model.model, pair)
    settings["most"] = Recipe.eval_tokens if data is None or named_data(data) is not None else None
    return compared(evaluate(model.model, model.params, task.held_out, **settings), task.train, task.held_out)


def is_table_of(model: LoadedModel, data: Any) -> bool:
    """Return whether data is a table with labels for a model that learned from one."""
    has_labels = model.origin is not None and model.origin["name"] == "classify" and bool(model.labels)
    return has_labels and (is_rows(data) or (isinstance(data, str | os.PathLike) and Path(data).exists()))


def file_parts(model: LoadedModel, data: Any) -> tuple[str, list[Dataset], tuple[str, ...]]:
    """Return how a model of a task with data is measured on all of another file, its parts, and lines about it."""
    assert model.origin is not None
    name, options = model.origin["name"], model.origin["options"]
    if is_rows(data) or Path(data).suffix.lower() in (".json", ".jsonl", ".ndjson"):
        # These name every column themselves.
        options = {option: value for option, value in options.items() if option != "header"}
    if name == "classify":
        reading = {role: options.get(role) for role in ("text", "label", "header")}
        reading["keep_missing"] = options.get("keep_missing", False)
        longest = min(options.get("longest", LONGEST), model.config.context)
        found = labeled_examples(data, model.lexicon, model.labels, longest=longest, **reading)
        return "classes", [found[0]], found[1]
    task = task_for(name, model.title, model, {**options, "data": data})
    parts = [part for part in (task.train, task.validation, task.held_out) if part is not None]
    texts = [part for part in parts if isinstance(part, Windows)]
    if texts == parts:  # one long text, which may be measured by a sample
        parts = [Windows(np.concatenate([one.tokens for one in texts]), texts[0].context)]
    return task.metric, parts, ()


def _evaluation_task(model: LoadedModel, data: Any, options: dict[str, Any]) -> Task:
    """Return a task whose held-out data a model is measured on: all of the data, where it has no such part."""
    data = named_data(data, options) or data
    is_named, is_task = isinstance(data, Named), isinstance(data, Task)
    if options and not is_named:
        what = "this task is built already" if is_task else "this is data"
        raise ConfigError(f"{next(iter(options))} is an option of tasks, and {what}", hint="leave it out")
    source = model.source or "this model"
    whole = None if is_named or is_task else data
    task, _ = tuning_task(data, model, source, model.config, {"seed": 0, **options}, whole)
    check_fit(task, source, model.config)
    return task


def _of_arrays(data: Any, model: LoadedModel, config: TransformerConfig, validation: Any, seed: int) -> Task:
    task = array_task(
        data,
        architecture=config.architecture,  # type: ignore[arg-type]
        validation=validation,
        tokenizer=model.tokenizer,
        target_tokenizer=model.target_tokenizer,
        context=config.context,
        seed=seed,
    )
    classes = config.classes if isinstance(config, EncoderConfig) else None
    if classes is not None and (task.settings.get("classes") or classes) <= classes:
        return replace(task, settings={**task.settings, "classes": classes})  # some may not occur in this data
    return task


def known(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are given."""
    return {name: value for name, value in options.items() if value is not None}
