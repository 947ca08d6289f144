"""`glassformer eval`."""

from dataclasses import replace
from pathlib import Path

import click

from .. import dispatch
from ..errors import ConfigError
from ..execution import PLAIN, Execution, MeshShape
from ..loading import read_model
from ..models import build
from ..runs.run import open_run
from ..trained_model import TrainedModel
from ..training import Evaluation, Recipe
from ..training.checkpoint import BEST
from ..tree import count
from ..weights.saved import is_saved
from .options import PATH, engine_option, json_option
from .output import print_json, print_table


@click.command()
@click.argument("run", type=PATH, help="A folder that `glassformer train` or `gf.save` wrote.")
@click.option("--checkpoint", default=BEST, help="Which parameters of a run: best or latest.")
@engine_option
@json_option
def evaluate(run: Path, checkpoint: str, engine: str | None, json: bool) -> None:
    """Measure a trained model on all of its held-out data."""
    trained, recipe, execution = _trained(run, checkpoint)
    task, params = trained.task, trained.params
    assert task is not None
    result = measure(trained, recipe, execution)
    if json:
        fields = {"task": task.name, "run": str(run), "checkpoint": checkpoint, "parameters": count(params)}
        figures = {"val_loss": result.loss, "accuracy": result.accuracy, "examples": result.examples}
        print_json({**fields, **figures, "targets": result.targets, "groups": result.groups})
        return
    right = "" if result.accuracy is None else f", {result.accuracy:.2%} right"
    print(f"{task.name}: loss {result.loss:.4f}{right} ({result.examples:,} examples, {result.targets:,} targets)")
    if result.groups:
        groups = sorted(result.groups.items(), key=lambda item: item[1])
        print_table(("group", ">right"), [(name, f"{share:.1%}") for name, share in groups])


def measure(trained: TrainedModel, recipe: Recipe | None = None, execution: Execution | None = None) -> Evaluation:
    """Measure with the current engine; under JAX with the settings of the run, but on one device."""
    engine, task, model = dispatch.current(), trained.task, trained.model
    assert task is not None
    if engine.library == "jax":
        model = build(model.config, (execution or PLAIN).replace(mesh=MeshShape(), rules=()))
    trainer = engine.trainer(model, replace(recipe or Recipe(), accumulate=1))
    return trainer.evaluate(trained.params, task.held_out, metric=task.metric, groups=task.groups)


def _trained(folder: Path, checkpoint: str) -> tuple[TrainedModel, Recipe | None, Execution | None]:
    """Return a trained model, its recipe and its execution; refuse data that has changed since."""
    if not is_saved(folder):
        run = open_run(folder)
        task = run.task()
        run.check_data()
        return TrainedModel.of_task(run.model, run.load_params(checkpoint), task), run.recipe, run.execution
    if checkpoint != BEST:
        raise ConfigError(f"{folder} is a saved model, which has no checkpoints", hint="leave out --checkpoint")
    model = read_model(folder)
    if model.origin is None:
        raise ConfigError(
            f"{folder} does not say what its model learned from",
            hint=f"measure it in Python: gf.load({str(folder)!r}).evaluate(data)",
        )
    return model, None, None
