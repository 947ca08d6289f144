"""Runs that start from a model that exists already, and train all of it or adapters beside it."""

from pathlib import Path
from typing import Any

from ..arrays import Tree
from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..data import TASKS, Task, build_task
from ..errors import ConfigError
from ..execution import Execution, separated
from ..trained_model import TrainedModel
from ..training.lora import Adapted, LoRA
from ..training.parametrization import EVERYTHING, Parametrization
from ..training.recipe import Recipe, changed_recipe
from .base import Base, stable_data
from .custom_files import takes_lexicon
from .run import read_base
from .session import Session, start_session
from .settings import Group, groups_of, model_settings, split_settings, task_groups, with_defaults
from .start import create_run

RECIPE = {"steps": 200, "batch": 4, "lr": 5e-5, "warmup": 10, "weight_decay": 0.01, "beta2": None, "eval_every": 50}
"""What differs from training anew: a model that knows much already needs few and careful steps."""

LORA_LR = 5e-4
"""Adapters start at nothing and take larger steps than the weights beside them could."""

CONTEXT = 64
"""How many tokens of a text are read at a time unless more are asked for."""

MAY_CHANGE = ("dropout", "attention_dropout", "embedding_dropout", "attention_tile")
"""Settings of a model that its parameters do not depend on."""


def fine_tuning_session(
    task_name: str,
    folder: Path,
    source: str,
    *,
    adapters: bool = False,
    data: str | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    execution: Execution | None = None,
    numbered: bool = False,
    recorded: bool = False,
) -> Session:
    """Start a run from the model at `source`, a path or a name; with `adapters`, its own parameters stay frozen.

    `settings` may change the recipe, the task, the dropout of the model, and rank, alpha and targets of the adapters,
    as lora_rank, lora_alpha and lora_targets.
    """
    settings, lora = _lora(dict(settings or {}), adapters)
    of_task, of_model, of_recipe = split_settings(task_name, settings)
    check_settings(source, of_task, of_model)
    model = read_base(source)
    config = tuned_config(model.config, of_model)
    options = {"data": stable_data(data), "seed": seed, **task_options(task_name, config, of_task)}
    task = task_for(task_name, source, model, options)
    check_fit(task, source, config)
    recipe = tuned_recipe(task, lora, {"seed": seed, **of_recipe})
    if lora is not None and execution is not None and execution.scan:
        lora.check_alike(model.params)
    trained = what_is_trained(model, lora, seed)
    base = Base.of(source, model, lora)
    how: dict[str, Any] = {"execution": execution, "settings": of_model, "numbered": numbered}
    run = create_run(folder, task, options, config, recipe, base=base, **how)
    return start_session(run, task, *trained, recorded=recorded)


def tuned_config(config: TransformerConfig, of_model: dict[str, Any]) -> TransformerConfig:
    """Return the config of a model with the settings changed that may be."""
    if "dropout" in of_model:  # the others follow, although published models name each
        of_model = {"attention_dropout": None, "embedding_dropout": None, **of_model}
    return config.replace(**separated(of_model)[0])


def task_options(task_name: str, config: TransformerConfig, of_task: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a task; text is read in pieces that the model can read, unless their length is given."""
    return {"context": min(CONTEXT, config.context), **of_task} if task_name == "text" else of_task


def tuned_recipe(task: Task, lora: LoRA | None, changes: dict[str, Any]) -> Recipe:
    """Return how a model that exists learns a task."""
    own = {**task.recipe, **RECIPE, **({} if lora is None else {"lr": LORA_LR})}
    recipe = changed_recipe(own, changes)
    recipe.pop("dropout")
    return Recipe.from_dict(recipe)


def what_is_trained(model: TrainedModel, lora: LoRA | None, seed: int) -> tuple[Tree, Parametrization]:
    """Return what is trained, before the first step, and how it makes up the model."""
    if lora is None:
        return model.params, EVERYTHING
    return lora.init(model.params, seed), Adapted(model.params, lora)


def fine_tuning_groups(task_name: str, source: str, config: TransformerConfig, *, adapters: bool) -> list[Group]:
    """Return the settings of fine-tuning a model on a task, with their defaults."""
    task, *_ = groups = task_groups(task_name)
    of_task = [one for one in task.settings if one.name not in ("tokenizer", "bpe_size")] if len(groups) == 3 else []
    options = task_options(task_name, config, {})
    of_model = [one for one in model_settings(config.architecture, config.to_dict()) if one.name in MAY_CHANGE]
    recipe = {**RECIPE, **({"lr": LORA_LR} if adapters else {})}
    how = "--set NAME=VALUE"
    found = [
        Group(f"task {task_name}", how, with_defaults(of_task, options)),
        Group(f"model ({source})", how, of_model),
        Group("recipe of fine-tuning", how + "; steps also as --steps", with_defaults(groups[-1].settings, recipe)),
        *(groups_of("lora") if adapters else []),
    ]
    return [group for group in found if group.settings]


def _lora(settings: dict[str, Any], adapters: bool) -> tuple[dict[str, Any], LoRA | None]:
    """Take the settings of adapters out of the others."""
    own = {name.removeprefix("lora_"): settings.pop(name) for name in list(settings) if name.startswith("lora_")}
    if not adapters:
        if own:
            raise ConfigError(f"lora_{next(iter(own))} is set, but there are no adapters to train", hint="add --lora")
        return settings, None
    if isinstance(own.get("targets"), str):
        own["targets"] = own["targets"].split(",")
    return settings, LoRA.from_dict(own)


def check_settings(source: str, of_task: dict[str, Any], of_model: dict[str, Any]) -> None:
    """Refuse settings that the model has decided already."""
    for name in ("tokenizer", "bpe_size"):
        if name in of_task:
            raise ConfigError(f"{name} is set, but {source} brings its own tokenizer", hint=f"leave {name} out")
    for name in of_model:
        if name not in MAY_CHANGE:
            raise ConfigError(
                f"{name} is set, but {source} has been built already",
                hint=f"leave {name} out; of the model, only {', '.join(MAY_CHANGE)} may be changed",
            )


def task_for(task_name: str, source: str, model: TrainedModel, options: dict[str, Any]) -> Task:
    """Build the task with the model's vocabulary; one with a vocabulary of its own must happen to have the same."""
    if takes_lexicon(task_name):
        return build_task(task_name, **options, lexicon=model.lexicon)
    task = build_task(task_name, **options)
    have = [task.tokenizer, task.target_tokenizer]
    want = [model.lexicon.tokenizer, model.lexicon.target_tokenizer]
    if [_stored(known) for known in have] != [_stored(known) for known in want]:
        free = ", ".join(name for name in TASKS if takes_lexicon(name))
        raise ConfigError(
            f"the task {task_name!r} has a vocabulary of its own, which is not that of {source}",
            hint=f"these tasks can be learned with the vocabulary of any model: {free}",
        )
    return task


def _stored(tokenizer: Any) -> Any:
    return None if tokenizer is None else tokenizer.to_dict()


def check_fit(task: Task, source: str, config: TransformerConfig) -> None:
    """Refuse a task that the model cannot read or answer."""
    if task.architecture != config.architecture:
        raise ConfigError(
            f"the architecture of {source} is {config.architecture!r}, but {task.name!r} needs {task.architecture!r}",
            hint="choose another task or another model",
        )
    if isinstance(config, EncoderConfig) and config.classes != task.settings["classes"]:
        raise ConfigError(
            f"{source} tells {config.classes or 'no'} classes apart, but {task.name!r} has {task.settings['classes']}",
            hint="choose a model that was trained on as many",
        )
    sizes = [(task.answer_tokenizer.size, config.vocab)]
    if isinstance(config, EncoderDecoderConfig):
        sizes.append((task.tokenizer.size, config.source_size))
    for size, vocab in sizes:
        if size > vocab:
            raise ConfigError(
                f"the tokenizer of {source} has {size:,} ids, but its model knows {vocab:,}",
                hint="use the tokenizer that the model was trained with",
            )
    longest = task.settings["context"]
    if longest > config.context:
        raise ConfigError(
            f"{task.name!r} reads {longest:,} tokens at a time, but {source} at most {config.context:,}",
            hint="lower context" if task.name == "text" else "lower longest, or choose another model",
        )
