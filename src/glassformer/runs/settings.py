"""The settings of a run: the task, model or recipe that each belongs to, its default, and suggestions for mistakes."""

import contextlib
import functools
import inspect
import os
import tempfile
from collections.abc import Mapping
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..config import CONFIGS, TransformerConfig, choices
from ..core import registry
from ..core.errors import ConfigError, GlassformerError, did_you_mean, nearest, typed
from ..core.execution import AMONG_MODEL_SETTINGS, PRECISIONS, Execution
from ..core.settings import Setting, check_known, check_options, described, setting_names
from ..core.show import Table
from ..data import TASKS, Task, build_task, import_file
from ..generation.sampling import Sampling
from ..generation.texts import TEMPERATURE
from ..models import PRESETS
from ..training.recipe import KEEP, Recipe
from ..training.trainable import LoRA

FROM_DATA = ("vocab", "context", "head", "classes", "segments", "source_vocab")
"""Settings of a model that follow from the data, whatever the preset."""

NOT_SETTINGS = ("seed", "data", "lexicon")
"""Parameters of a task that are not settings: they have options of their own."""

ALIASES = {
    "batch": ("batch_size", "train_batch_size", "micro_batch_size"),
    "clip": ("grad_clip", "max_grad_norm", "gradient_clip"),
    "context": ("block_size", "seq_len", "seq_length", "max_length", "max_position_embeddings", "n_ctx", "n_positions"),
    "decay_steps": ("lr_decay_iters",),
    "eval_every": ("eval_interval", "eval_steps"),
    "eval_tokens": ("eval_iters", "eval_batches", "limit_val_batches"),
    "feed_forward": ("d_ff", "dff", "ffn_dim", "intermediate_size", "n_inner", "dim_feedforward"),
    "floor": ("min_lr",),
    "heads": ("n_head", "nhead", "num_attention_heads"),
    "kv_heads": ("num_key_value_heads", "n_kv_head"),
    "layers": ("n_layer", "num_hidden_layers", "depth", "num_blocks", "n_blocks"),
    "lr": ("learning_rate",),
    "norm_eps": ("layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps"),
    "accumulate": ("gradient_accumulation_steps", "grad_accum"),
    "schedule": ("lr_scheduler", "lr_scheduler_type"),
    "steps": ("max_iters", "max_steps", "iterations", "iters", "epochs", "num_train_epochs", "num_steps"),
    "tied_head": ("tie_word_embeddings", "tie_embeddings", "weight_tying"),
    "activation": ("hidden_act", "act", "nonlinearity"),
    "positions": ("position_embedding", "positional_encoding", "pos_emb"),
    "vocab": ("vocab_size", "n_vocab"),
    "warmup": ("warmup_iters", "warmup_steps"),
    "weight_decay": ("wd", "l2"),
    "width": ("d_model", "n_embd", "hidden_size", "hidden_dim", "embed_dim", "embedding_dim", "dim"),
}
"""Names of our settings in other libraries."""

FEW_EXAMPLES = {"train": 40, "held_out": 40, "held_out_each": 2}
"""Options that make a task small, where it has them."""

OF_DATA = "of the data"
"""Default shown for settings that the data decides."""


class Group(NamedTuple):
    """The settings of one thing, such as a task, and how to set them."""

    title: str
    how: str
    settings: list[Setting]


class SettingRow(NamedTuple):
    """One setting, its group, and the value that it has unless another one is given."""

    group: str
    name: str
    value: Any
    takes: str
    meaning: str


def settings(topic: Any) -> Table:
    """Return every setting of a task, a preset, a config or a group as a table: its value, choices and meaning.

    topic   the name of a task or a preset; encoder, decoder or encoder-decoder; recipe, model, lora or sampling; a
            Python file with tasks; or a config or a model, which has values of its own

    >>> import glassformer as gf
    >>> next(row for row in gf.settings("recipe") if row.name == "clip").meaning
    'largest global norm of the gradients (0 or none: never clip)'
    """
    return Table(
        SettingRow(
            group.title,
            setting.name,
            "must be given" if setting.default is MISSING else setting.default,
            setting.takes,
            setting.meaning,
        )
        for group in groups_of(topic)
        for setting in group.settings
    )


def split_settings(task_name: str, settings: Mapping[str, Any]) -> tuple[dict, dict, dict]:
    """Split settings into those of the task, of the model and of the recipe."""
    check_known("there is no task", task_name, TASKS)
    of_model = {name for config in CONFIGS.values() for name in setting_names(config)} | set(AMONG_MODEL_SETTINGS)
    owners = (_options(task_name), of_model, set(setting_names(Recipe)) - {"seed"})
    groups: tuple[dict, dict, dict] = ({}, {}, {})
    for name, value in settings.items():
        group = next((group for known, group in zip(owners, groups, strict=True) if name in known), None)
        if group is None:
            raise ConfigError(f"there is no setting {name!r}", hint=_suggestion(name, task_name, set().union(*owners)))
        group[name] = value
    check_options(TASKS[task_name], groups[0])
    return groups


def _suggestion(name: str, task_name: str, known: set[str]) -> str:
    """Suggest what an unknown setting may have meant, or where the known ones are listed."""
    if name in ("seed", "data"):
        return f"use --{name}"
    if name.startswith("lora_"):
        return "LoRA needs a model to start from: --from MODEL --lora"
    file = registry.origin("task", task_name)
    topic = task_name if file is None else typed(os.path.relpath(file))
    listed = f"`glassformer settings {topic}` lists every setting"
    matches = [ours for ours, others in ALIASES.items() if name.casefold() in others and ours in known]
    if matches:
        return f"here it is called {matches[0]!r}; {listed}"
    tasks = [other for other in TASKS if name in _options(other)]
    if tasks:
        return f"{name} is a setting of {' and '.join(map(repr, tasks))}, not of {task_name!r}; {listed}"
    if name in setting_names(Sampling):
        return f"it says how a model writes: glassformer generate --{name.replace('_', '-')}; {listed}"
    return f"{did_you_mean(name, known)} {listed}" if nearest(name, known) else listed


def _options(task_name: str) -> set[str]:
    return set(inspect.signature(TASKS[task_name]).parameters) - set(NOT_SETTINGS)


def default_task(name: str) -> Task:
    """Build a task with its default settings from little data: for its settings, not its examples."""
    return _small_task(name, TASKS[name])


@functools.cache
def _small_task(name: str, make: Any) -> Task:
    """Cached by function, because a custom task may be registered again."""
    parameters = inspect.signature(make).parameters
    few = {option: number for option, number in FEW_EXAMPLES.items() if option in parameters}
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.tsv"
        rows = "".join(f"line {i}\tLine {i % 20}\n" for i in range(200))
        sample.write_text(f"text\tlabel\n{rows}", encoding="utf-8")
        read = {"data": sample} if "data" in parameters else {}
        for options in ({**few, **read}, read):
            with contextlib.suppress(GlassformerError):  # too few examples, or a custom task that reads another format
                return build_task(name, **options)
    return build_task(name)


def task_groups(name: str) -> list[Group]:
    """Return every setting of training on a task, with the task's defaults."""
    task = default_task(name)
    of_task = [setting for setting in described(TASKS[name]) if setting.name not in NOT_SETTINGS]
    taken = {setting.name for setting in of_task}
    defaults = {**task.settings, "dropout": task.recipe["dropout"]}
    defaults |= {part: OF_DATA for part in FROM_DATA if part in task.settings}
    model = [setting for setting in model_settings(task.architecture, defaults) if setting.name not in taken]
    recipe = [setting for setting in with_defaults(recipe_settings(), task.recipe) if setting.name not in taken]
    how = "--set NAME=VALUE"
    return [
        *([Group(f"task {name}", how, of_task)] if of_task else []),
        Group(f"model ({task.architecture})", how, model),
        Group("recipe", how + "; steps also as --steps", recipe),
    ]


def model_settings(architecture: str, defaults: Mapping[str, Any] | None = None) -> list[Setting]:
    """Return the settings of an architecture's model and of how it runs; `defaults` come before their own."""
    of_model = described(CONFIGS[architecture], choices())
    beside = {setting.name: setting for setting in described(Execution, {"precision": PRECISIONS})}
    of_model += [replace(beside[name], name=called) for called, name in AMONG_MODEL_SETTINGS.items()]
    return with_defaults(of_model, defaults or {})


def recipe_settings() -> list[Setting]:
    """Return the settings of a recipe; the seed has an option of its own."""
    known = described(Recipe, {**{family: registry.known(family) for family in registry.OF_RECIPE}, "keep": KEEP})
    return [setting for setting in known if setting.name != "seed"]


def with_defaults(settings: list[Setting], defaults: Mapping[str, Any]) -> list[Setting]:
    """Return the settings with other defaults."""
    return [
        replace(setting, default=defaults[setting.name]) if setting.name in defaults else setting
        for setting in settings
    ]


def groups_of(topic: Any) -> list[Group]:
    """Return the settings of a task, a preset, an architecture, a topic or a file, by its name; or of a config."""
    set_model = "params PRESET --set NAME=VALUE, train TASK --set NAME=VALUE"
    config = getattr(topic, "config", topic)
    if isinstance(config, TransformerConfig):
        return [Group(f"model ({config.architecture})", set_model, model_settings(config.architecture, vars(config)))]
    if str(topic).endswith(".py"):
        tasks = import_file(topic).tasks
        if not tasks:
            raise ConfigError(f"{topic} holds no task", hint="mark a function with @gf.task")
        if len(tasks) == 1:
            return groups_of(tasks[0])
        return [group._replace(title=f"{task}: {group.title}") for task in tasks for group in groups_of(task)]
    if not isinstance(topic, str):
        raise ConfigError(f"{topic!r:.80} has no settings", hint="pass a model, a config, or the name of a task")
    if topic in TASKS:
        return task_groups(topic)
    if topic in PRESETS:
        values = {name: value for name, value in PRESETS[topic].items() if name != "architecture"}
        architecture = PRESETS[topic]["architecture"]
        title = f"model ({topic}, {architecture})"
        return [Group(title, set_model.replace("PRESET", topic), model_settings(architecture, values))]
    if topic in CONFIGS:
        return [Group(f"model ({topic})", set_model, model_settings(topic))]
    listed = "`glassformer settings` lists tasks, presets and groups"
    check_known("there is nothing to set called", topic, [*TOPICS, *TASKS, *PRESETS, *CONFIGS], listed=listed)
    if topic == "model":
        every = {setting.name: setting for name in CONFIGS for setting in model_settings(name)}
        return [Group("model (all architectures)", set_model, list(every.values()))]
    if topic == "recipe":
        return [Group("recipe", "train TASK --set NAME=VALUE; steps also as --steps", recipe_settings())]
    if topic == "lora":
        adapters = [replace(setting, name=f"lora_{setting.name}") for setting in described(LoRA)]
        return [Group("adapters", "train TASK --from MODEL --lora --set NAME=VALUE", adapters)]
    drawn = with_defaults(described(Sampling), {"temperature": TEMPERATURE})
    return [Group("sampling", "generate MODEL --NAME VALUE, with - in the place of _", drawn)]


TOPICS = {
    "recipe": "how to train: steps, optimizer, learning rate, schedule, evaluation",
    "model": "what a model is: sizes, norms, positions, attention, head, dropout",
    "lora": "adapters beside a frozen model",
    "sampling": "how the next token is chosen when a model writes",
}
"""Groups of settings, in one line each."""
