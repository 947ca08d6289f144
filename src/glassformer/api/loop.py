"""Training as an iterator: your own loop around the steps of `glassformer train`, at the same speed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..config import TransformerConfig
from ..core import dispatch
from ..core.arguments import short_traces
from ..core.arrays import Tree, widen
from ..core.errors import CheckpointError, ConfigError, did_you_mean
from ..core.execution import PLAIN, Execution, joined, separated
from ..core.quantized import Quantized
from ..core.tree import flatten, tree_map
from ..data import Task, build_task
from ..data.arrays import BatchStream, array_task
from ..data.tables import is_rows, written_rows
from ..models import PRESETS, Model
from ..runs.planning import Chosen, check_fit, check_settings, jax_execution, model_config, new_run, plan_tuned
from ..runs.run import Ready, TrainingRun, model_of_run
from ..runs.session import TrainingSession
from ..runs.sinks import Memory
from ..runs.start import resume_session, start_session
from ..training import History, StepRecord
from ..training.optimizers import register_optimizer
from ..training.peft import Adapter
from ..training.recipe import Recipe, changed_recipe, register_loss, register_schedule
from .arguments import Arguments, check_order, takes_arguments
from .tasks import known, named_data, sorted_for, tuning_task
from .trained_model import TrainedModel

Begun = tuple[TrainingSession, Callable[[Tree], TrainedModel]]
"""A training, and what makes a model of its parameters."""
REGISTER: dict[str, Any] = {"optimizer": register_optimizer, "schedule": register_schedule, "loss": register_loss}


@short_traces
class Loop:
    """All steps of a training, one after the other; the arguments are those of `gf.train`.

        for record in loop: …     takes the steps; break leaves, and another `for` goes on
        loop.history              what all steps so far did
        loop.now                  the model as it is now
        loop.best                 the model with the lowest validation loss so far
        gf.Loop.resume(folder)    a loop that continues the run in a folder

    BLAS has as many threads as suit the model while a step is taken, and as many as before in between. Its settings
    are fixed when a loop begins.

    >>> import glassformer as gf
    >>> loop = gf.Loop("majority", steps=200, lr=3e-3)
    >>> for record in loop:
    ...     if record.step == 50:
    ...         break
    >>> loop.now, len(loop.history), loop.steps
    (TrainedModel(encoder, 8,803 parameters, History(50 steps, loss ...)), 50, 200)
    """

    __slots__ = ("_trained", "session")  # any other attribute that is set is a mistake

    @takes_arguments
    def __init__(self, data: Any, model: Any = None, **options: Any) -> None:
        check_order("Loop", data, model, options)
        arguments = _completed(Arguments.of(data, model, options))
        arguments.check()
        begin = _tuning if isinstance(arguments.model, TrainedModel) else _new
        self.session, self._trained = begin(arguments)

    @classmethod
    def resume(cls, folder: str | Path, *, steps: int | None = None, anyway: bool = False) -> Self:
        """Return the rest of a run, from its latest checkpoint; `steps` and `anyway` are those of `gf.resume`."""
        loop = cls.__new__(cls)
        loop.session = resume_session(folder, steps=steps, anyway=anyway)
        loop._trained = lambda params: TrainedModel.of(model_of_run(loop.session.run, params=params))
        return loop

    def __reduce__(self) -> Any:
        hint = "copy loop.now, or name a folder: gf.Loop(…, out=folder), and gf.Loop.resume(folder) elsewhere"
        raise ConfigError("a loop holds a training that goes on, which cannot be copied or pickled", hint=hint)

    def __iter__(self) -> Iterator[StepRecord]:
        return self.session.steps()

    @property
    def steps(self) -> int:
        """The number of steps in all."""
        return self.session.run.recipe.steps

    @property
    def history(self) -> History:
        """The records of all steps so far."""
        sink = self.session.sink
        self.session.write_records()
        return History(sink.records) if isinstance(sink, Memory) else History.from_metrics(sink.metrics())

    @property
    def now(self) -> TrainedModel:
        """A copy of the model as it is now. Its arrays are read-only: writing to them would not change the training."""
        made = self._made(self.session.now())
        for leaf in flatten(made.params).values():
            leaf.flags.writeable = False
        return made

    @property
    def best(self) -> TrainedModel:
        """The model with the lowest validation loss so far, or as it is now where nothing was evaluated yet."""
        try:
            return self._made(self.session.sink.load())
        except CheckpointError:
            return self._made(self.session.now())

    def _made(self, trained: Tree) -> TrainedModel:
        own = self.session.parametrization
        params = own.effective(trained)
        adapter = Adapter.of(own, trained, params)
        loss, metrics = self.session.run.recipe.loss, self.history.metrics
        return replace(self._trained(params), adapter=adapter, metrics=metrics, loss=loss)


def _completed(arguments: Arguments) -> Arguments:
    """Return arguments whose data can be trained on, and with the settings that other arguments mean."""
    data, built, execution = arguments.data, arguments.built, arguments.execution
    settings = {**_by_name(arguments.settings), **({} if arguments.steps is None else {"steps": arguments.steps})}
    if isinstance(data, Iterator):
        data = BatchStream(data)
        settings = {"batch": len(data), **settings}
    data = written_rows(data) if arguments.out is not None and is_rows(data) else data
    data = named_data(data, settings) or data
    if built is not None:
        settings = {**_host_settings(built.execution, execution), **settings}
    if execution is None and dispatch.current().library == "jax":
        execution = jax_execution(PLAIN if built is None else built.execution)
    return replace(arguments, data=data, execution=execution, settings=settings)


def _new(arguments: Arguments) -> Begun:
    """Begin the training of a model that does not exist yet; return what makes it of its parameters, too."""
    preset, given = _model(arguments.model)
    of_task, of_model, of_recipe = sorted_for(arguments.data, arguments.settings)
    task, origin = _task(arguments, of_task, of_model, preset, given)
    recipe = changed_recipe(task.recipe, {"seed": arguments.seed, **of_recipe})
    dropout = recipe.pop("dropout")
    if given is None:
        config = model_config(task, preset, {"dropout": dropout, **of_model})
    else:
        config = given.replace(**separated(of_model)[0])
        check_fit(task, "this model", config)
    chosen = Chosen(_options(origin), of_model, of_recipe, arguments.execution)
    run = new_run(task, config, Recipe.from_dict(recipe), chosen)
    session = _session(arguments, replace(run, ready=Ready(task, arguments.params)), origin)
    source = "" if arguments.out is None else str(arguments.out)
    return session, lambda params: TrainedModel.of_task(session.model, params, task, source=source, origin=origin)


def _tuning(arguments: Arguments) -> Begun:
    """Begin the training of a model that exists: of all of it, or of adapters beside it."""
    model: TrainedModel = arguments.model
    if arguments.out is not None and not model.source:
        fact = "a run folder remembers the model it started from by where it is, and this one is nowhere"
        raise ConfigError(fact, hint="write it with gf.save(model, folder), and go on with gf.load(folder)")
    source = model.source or "this model"
    of_task, of_model, of_recipe = sorted_for(arguments.data, arguments.settings)
    own = joined(model.execution)
    check_settings(source, of_task, {name: value for name, value in of_model.items() if name not in own})
    base = replace(model, params=_plain(model.params))
    options = {"seed": arguments.seed, **of_task}
    task, origin = tuning_task(arguments.data, base, source, model.config, options, arguments.validation)
    of_recipe = {"seed": arguments.seed, **of_recipe}
    in_memory = arguments.out is None
    chosen = Chosen(_options(origin), of_model, of_recipe, arguments.execution)
    session = _session(
        arguments, plan_tuned(base, task, source, chosen, arguments.adapters, in_memory=in_memory), origin
    )
    config = session.run.config
    where = "" if in_memory else str(arguments.out)
    labels = task.class_labels(config)
    more: dict[str, Any] = {"labels": labels, "source": where, "origin": origin, "task_maker": lambda: task}
    return session, lambda params: replace(model, config=config, params=params, **more)


def _model(model: Any) -> tuple[str | None, TransformerConfig | None]:
    """Return the preset that is asked for, or the config."""
    if model is None or isinstance(model, TransformerConfig):
        return None, model
    if isinstance(model, Model):
        return None, model.config
    if isinstance(model, str) and model in PRESETS:
        return model, None
    if not isinstance(model, str):
        hint = "pass the name of a preset, a config, gf.build(…), gf.load(…), or None for the task's own"
        raise ConfigError(f"{model!r:.80} is no model", hint=hint)
    hint = f"{did_you_mean(model, PRESETS)}; to go on from a trained model, pass gf.load({model!r})"
    raise ConfigError(f"there is no preset {model!r}", hint=hint)


def _task(
    arguments: Arguments,
    of_task: dict[str, Any],
    of_model: dict[str, Any],
    preset: str | None,
    given: TransformerConfig | None,
) -> tuple[Task, dict[str, Any] | None]:
    """Return the task, and the options that would build it again where it has a name."""
    named = named_data(arguments.data)
    if named is not None:
        name, path = named
        length = {"context": given.context} if name == "text" and given is not None else {}
        options = known({"data": path, "seed": arguments.seed, **length, **of_task})
        return build_task(name, **options), named.origin(options)
    if isinstance(arguments.data, Task):
        return arguments.data, None
    architecture: Any = None if given is None else given.architecture
    if preset is not None:
        architecture = PRESETS[preset]["architecture"]
    context = of_model.get("context", None if given is None else given.context)
    how = {"validation": arguments.validation, "context": context, "seed": arguments.seed}
    return array_task(arguments.data, architecture=architecture, **how), None


def _options(origin: dict[str, Any] | None) -> dict[str, Any]:
    return {} if origin is None else origin["options"]


def _session(arguments: Arguments, run: TrainingRun, origin: dict[str, Any] | None) -> TrainingSession:
    """Start the training in memory, or in a folder if one is asked for."""
    if arguments.out is None:
        return start_session(replace(run, ready=run.ready._replace(model=arguments.custom_model)))
    if arguments.custom_model is not None:
        own = type(arguments.custom_model).__name__
        fact = f"a run folder builds its model from the config, which does not know the class {own}"
        raise ConfigError(fact, hint="leave out `out`, or register a block: docs/guides/own_parts.md")
    if origin is None:
        fact = "a run folder remembers its data by the name of a task or a file, and this data has neither"
        hint = "write it into a file and pass the path; or leave out `out`, and write the model with gf.save"
        raise ConfigError(fact, hint=hint)
    return start_session(run, Path(arguments.out), recorded=arguments.record)


def _host_settings(own: Execution, execution: Execution | None) -> dict[str, Any]:
    """Return the execution of a model that was built already as settings, unless another one is given."""
    if execution is not None:
        return {}
    settings = joined(own)
    if dispatch.current().library != "jax" and PLAIN.replace(**separated(settings)[1]) != own:
        hint = 'call gf.set_engine("jax"), or leave them out'
        raise ConfigError("mesh, scan and rules are settings of the engine jax", hint=hint)
    return settings


def _plain(params: Tree) -> Tree:
    """Return parameters to train: in one piece, in float32 or wider, in memory that they share with no one."""
    for name, leaf in flatten(params).items():
        if isinstance(leaf, Quantized):
            fact = f"{name} is kept in blocks of the form {leaf.form}, which cannot be trained"
            raise ConfigError(fact, hint='load the model with weights="float32"')
    return tree_map(lambda array: np.array(widen(np.asarray(array)), order="C"), params)


def _by_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the name of an optimizer, schedule or loss that is given itself, and so is registered."""
    named = dict(settings)
    for family, register in REGISTER.items():
        given = settings.get(family)
        parts = given if isinstance(given, tuple) else (given,)
        if given is None or isinstance(given, str):
            continue
        if len(parts) != 1 + (family == "loss"):
            fact = f"{family} is {given!r:.80}"
            raise ConfigError(fact, hint="a loss is a pair of functions (forward, backward), the others are one")
        named[family] = getattr(parts[0], "__name__", type(parts[0]).__name__)
        register(named[family], *parts)
    return named
