"""Plan a run: its task, model and recipe from settings, for a new model or one that exists already."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig, config_from_dict
from ..core.errors import ConfigError
from ..core.execution import PLAIN, Execution, MeshShape, separated
from ..core.settings import check_known
from ..data import TASKS, Task, build_task
from ..models import PRESETS, build
from ..training.recipe import Recipe, changed_recipe
from ..training.trainable import EVERYTHING, HEAD, LoRA, Parametrization, leaves_only
from ..weights.folder import read_pooling
from ..weights.loaded_model import LoadedModel
from ..weights.sentence import classes_config, with_classes
from ..weights.stores import locate
from .custom_files import takes_lexicon
from .provenance import Base, Provenance, stable_data
from .run import Ready, TrainingRun, engine_of, read_base
from .settings import (
    FROM_DATA,
    Group,
    default_task,
    groups_of,
    model_settings,
    split_settings,
    task_groups,
    with_defaults,
)

RECIPE = {
    "steps": 200, "batch": 4, "lr": 5e-5, "warmup": 10, "weight_decay": 0.01, "beta2": None, "eval_every": 50,
    "eval_tokens": 1 << 14, "patience": None, "keep": "best",
}  # fmt: skip
"""Settings of fine-tuning that differ from training anew: a trained model needs few and careful steps."""
LORA_LR = 5e-4
"""Adapters start at nothing and take larger steps than the weights beside them could."""
CLASSES_RECIPE = {"batch": 16, "steps": 300}
"""Settings for an encoder with a new head, which learns one class of each text, not every next token."""
HEAD_RECIPE = {"steps": 1000, "batch": 128, "lr": 2e-3, "weight_decay": 5.0, "eval_every": 50, "shards": 1}
"""Settings for a new head alone: its loss has one minimum, and a step costs next to nothing."""
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": None, "embedding_dropout": None}
CONTEXT = 64
"""Tokens of a text that are read at a time unless more are asked for."""
OF_TOKENIZER = ("tokenizer", "tokenizer_size")
"""Settings of a task that a model with a tokenizer has decided already."""
MAY_CHANGE = ("dropout", "attention_dropout", "embedding_dropout", "attention_tile")
"""Settings of a model that its parameters do not depend on."""


class Chosen(NamedTuple):
    """Settings in which a run differs from what its task and its model begin with.

    options     that its task was built with
    of_model    settings of the model, and of how it runs
    of_recipe   settings of the recipe
    execution   of the engine jax (None: an engine of the host computes)
    """

    options: dict[str, Any]
    of_model: dict[str, Any]
    of_recipe: dict[str, Any]
    execution: Execution | None = None


def new_run(
    task: Task,
    config: TransformerConfig,
    recipe: Recipe,
    chosen: Chosen,
    *,
    preset: str | None = None,
    base: Base | None = None,
) -> TrainingRun:
    """Return a run without a folder, with the shards of this machine; refuse devices that are not there."""
    under_jax = chosen.execution is not None
    engine = engine_of(under_jax=under_jax)
    if recipe.shards is None:
        recipe = replace(recipe, shards=engine.executor.shards(config, recipe.batch // recipe.accumulate))
    run = TrainingRun(
        folder=Path(task.name),
        task_name=task.name,
        task_options={name: value for name, value in chosen.options.items() if value is not None},
        config=config,
        recipe=recipe,
        provenance=Provenance.now(engine.name, task.train, recipe, preset),
        base=base,
        execution=(chosen.execution or PLAIN).replace(**separated(chosen.of_model)[1]),
        under_jax=under_jax,
        ready=Ready(task),
    )
    run.check()
    return run


def plan_new(
    task_name: str,
    settings: dict[str, Any] | None = None,
    execution: Execution | None = None,
    *,
    data: str | None = None,
    preset: str | None = None,
    seed: int = 0,
) -> TrainingRun:
    """Plan the training of a new model: the task's own, or a preset's, changed by settings."""
    of_task, of_model, of_recipe = split_settings(task_name, settings or {})
    options = {"data": stable_data(data), "seed": seed, **of_task}
    task = build_task(task_name, **options)
    return plan_task(task, Chosen(options, of_model, {"seed": seed, **of_recipe}, execution), preset=preset)


def plan_task(task: Task, chosen: Chosen, *, preset: str | None = None) -> TrainingRun:
    """Plan the training of a new model on a task that was built already."""
    recipe = changed_recipe(task.recipe, chosen.of_recipe)
    config = model_config(task, preset, {"dropout": recipe.pop("dropout"), **chosen.of_model})
    return new_run(task, config, Recipe.from_dict(recipe), chosen, preset=preset)


def jax_execution(execution: Execution = PLAIN) -> Execution:
    """Return how the engine jax trains unless told otherwise: over all devices."""
    import jax

    return execution.replace(mesh=MeshShape(data=jax.device_count())) if execution.mesh == PLAIN.mesh else execution


def plan_tuning(
    task_name: str,
    source: str,
    settings: dict[str, Any] | None = None,
    execution: Execution | None = None,
    *,
    adapters: bool = False,
    data: str | None = None,
    seed: int = 0,
) -> TrainingRun:
    """Plan the training of the model at `source`, a path or a name; with `adapters`, its own parameters stay frozen.

    `settings` may change the recipe, the task, the dropout of the model, and rank, alpha and targets of the adapters,
    as lora_rank, lora_alpha and lora_targets.
    """
    settings, lora = _split_lora(settings or {}, adapters)
    of_task, of_model, of_recipe = split_settings(task_name, settings)
    check_settings(source, of_task, of_model)
    model = read_base(source)
    options = {"data": stable_data(data), "seed": seed, **task_options(task_name, model.config, of_task)}
    task = task_for(task_name, source, model, options)
    return plan_tuned(model, task, source, Chosen(options, of_model, {"seed": seed, **of_recipe}, execution), lora)


def plan_tuned(
    model: LoadedModel, task: Task, source: str, chosen: Chosen, lora: LoRA | None, *, in_memory: bool = False
) -> TrainingRun:
    """Plan how a model learns a task: all of it, adapters beside it, or only a new head for its classes."""
    _, of_model, of_recipe, execution = chosen
    head = needs_head(model.config) and "classes" in task.settings
    if head:
        model = with_classes(model, task.settings["classes"], of_recipe["seed"])
    defaults = tuning_defaults(model.config, adapters=lora is not None, head=head, frozen="freeze" not in of_recipe)
    if "freeze" in of_recipe:
        of_recipe = {**of_recipe, "freeze": of_recipe["freeze"] or ()}
    settings = changed_recipe({**task.recipe, **defaults}, of_recipe)
    settings.pop("dropout")
    if lora is not None and settings.get("freeze"):
        raise ConfigError("LoRA freezes all of the model already", hint="leave out freeze, or choose LoRA's targets")
    recipe = Recipe.from_dict(settings)
    head_alone = head and lora is None and leaves_only(recipe.freeze, HEAD, model.model)
    if "dropout" in of_model or head_alone:  # the others follow, although published models name each
        of_model = {**NO_DROPOUT, **of_model}
    config = model.config.replace(**separated(of_model)[0])
    check_fit(task, source, config)
    if lora is not None and execution is not None and execution.scan:
        lora.check_alike(model.params)
    base = None if in_memory else Base.of(source, model, lora, head=head)
    run = new_run(task, config, recipe, chosen._replace(of_model=of_model), base=base)
    if lora is None and not head_alone:
        return replace(run, ready=Ready(task, model.params, EVERYTHING))
    parametrization = Parametrization(model.params, lora, (HEAD,) if head else (), model.source)
    return replace(run, ready=Ready(task, parametrization.first(recipe.seed), parametrization))


def model_config(task: Task, preset: str | None, changes: dict[str, Any]) -> TransformerConfig:
    """Return the task's model, or a preset's with the task's vocabulary and lengths."""
    settings = {"architecture": task.architecture, **task.settings}
    if preset is not None:
        check_known("there is no preset", preset, PRESETS, listed="`glassformer models` lists them")
        chosen = PRESETS[preset]
        if chosen["architecture"] != task.architecture:
            raise ConfigError(
                f"the architecture of {preset!r} is {chosen['architecture']!r}, "
                f"but {task.name!r} needs {task.architecture!r}",
                hint="choose another preset, or none",
            )
        left_out = {*FROM_DATA, *(("head_bias", "head_scale") if "classes" in task.settings else ())}
        kept = {name: value for name, value in chosen.items() if name not in left_out}
        settings = {**kept, **{name: task.settings[name] for name in FROM_DATA if name in task.settings}}
    return config_from_dict({**settings, **changes})


# --- a model that exists ---------------------------------------------------------------------------------------------


def task_options(task_name: str, config: TransformerConfig, of_task: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a task; text is read in pieces that the model can read, unless their length is given."""
    return {"context": min(CONTEXT, config.context), **of_task} if task_name == "text" else of_task


def tuning_defaults(config: TransformerConfig, *, adapters: bool, head: bool, frozen: bool = True) -> dict[str, Any]:
    """Return the settings of a recipe that fine-tuning begins with instead of the task's.

    head     whether the model gets a new head, for the classes of a task
    frozen   whether the user left it to us what is frozen then: all but the head
    """
    defaults = {**RECIPE, **(CLASSES_RECIPE if head else {}), **({"lr": LORA_LR} if adapters else {})}
    if not head or adapters or not frozen:
        return defaults
    others = [part for part in build(config).specs() if part != HEAD]
    return {**defaults, **HEAD_RECIPE, "freeze": others}


def needs_head(config: TransformerConfig) -> bool:
    """Return whether a model is an encoder that tells no classes apart yet."""
    return isinstance(config, EncoderConfig) and config.head != "classes"


def fine_tuning_groups(task_name: str, source: str, config: TransformerConfig, *, adapters: bool) -> list[Group]:
    """Return the settings of fine-tuning a model on a task, with their defaults."""
    task, *_ = groups = task_groups(task_name)
    of_task = [setting for setting in task.settings if setting.name not in OF_TOKENIZER] if len(groups) == 3 else []
    head = needs_head(config) and "classes" in default_task(task_name).settings
    if head:
        path = locate(source)
        config = classes_config(config, 2, read_pooling(path) if path.is_dir() else None)
        config = config if adapters else config.replace(**NO_DROPOUT)
    of_model = [
        setting for setting in model_settings(config.architecture, config.to_dict()) if setting.name in MAY_CHANGE
    ]
    recipe = with_defaults(groups[-1].settings, tuning_defaults(config, adapters=adapters, head=head))
    how = "--set NAME=VALUE"
    shown = [
        Group(f"task {task_name}", how, with_defaults(of_task, task_options(task_name, config, {}))),
        Group(f"model ({source})", how, of_model),
        Group("recipe of fine-tuning", how + "; steps also as --steps", recipe),
        *(groups_of("lora") if adapters else []),
    ]
    return [group for group in shown if group.settings]


def _split_lora(settings: dict[str, Any], adapters: bool) -> tuple[dict[str, Any], LoRA | None]:
    """Split off the settings of adapters."""
    others = {name: value for name, value in settings.items() if not name.startswith("lora_")}
    adapter = {name.removeprefix("lora_"): value for name, value in settings.items() if name not in others}
    if not adapters:
        if adapter:
            raise ConfigError(
                f"lora_{next(iter(adapter))} is set, but there are no adapters to train", hint="add --lora"
            )
        return others, None
    if isinstance(adapter.get("targets"), str):
        adapter["targets"] = adapter["targets"].split(",")
    return others, LoRA.from_dict(adapter)


def check_settings(source: str, of_task: dict[str, Any], of_model: dict[str, Any]) -> None:
    """Refuse settings that the model has decided already."""
    for name in OF_TOKENIZER:
        if name in of_task:
            raise ConfigError(f"{name} is set, but {source} brings its own tokenizer", hint=f"leave {name} out")
    for name in of_model:
        if name not in MAY_CHANGE:
            raise ConfigError(
                f"{name} is set, but {source} has been built already",
                hint=f"leave {name} out; of the model, only {', '.join(MAY_CHANGE)} may be changed",
            )


def task_for(task_name: str, source: str, model: LoadedModel, options: dict[str, Any]) -> Task:
    """Build the task with the model's vocabulary; one with a vocabulary of its own must happen to have the same."""
    if takes_lexicon(task_name):
        return build_task(task_name, **options, lexicon=model.lexicon)
    task = build_task(task_name, **options)
    have, want = ((each.tokenizer, each.target_tokenizer) for each in (task, model.lexicon))
    if [known and known.to_dict() for known in have] != [known and known.to_dict() for known in want]:
        free = ", ".join(name for name in TASKS if takes_lexicon(name))
        raise ConfigError(
            f"the task {task_name!r} has a vocabulary of its own, which is not that of {source}",
            hint=f"these tasks can be learned with the vocabulary of any model: {free}",
        )
    return task


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
