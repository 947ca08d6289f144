"""`glassformer eval`."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..loading import load_weights, task_of
from ..runs.run import open_run
from ..runs.trained import Trained
from ..training.evaluate import evaluate as measure
from ..tree import count
from ..weights.saved import is_saved
from .devices import EngineOption
from .output import JsonOption, console, print_json, table

BEST = "best"


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `glassformer train` or `gf.save` wrote.")],
    checkpoint: Annotated[str, typer.Option(help="Which parameters of a run: best or latest.")] = BEST,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a trained model on all of its held-out data."""
    trained = _saved(run, checkpoint) if is_saved(run) else _trained(run, checkpoint)
    task, params = trained.task, trained.params
    result = measure(trained.model, params, task.held_out, metric=task.metric, groups=task.groups)
    if json:
        fields = {"task": task.name, "run": str(run), "checkpoint": checkpoint, "parameters": count(params)}
        figures = {"val_loss": result.loss, "accuracy": result.accuracy, "examples": result.examples}
        print_json({**fields, **figures, "targets": result.targets, "groups": result.groups})
        return
    out = console()
    right = "" if result.accuracy is None else f", {result.accuracy:.2%} right"
    out.print(f"{task.name}: loss {result.loss:.4f}{right} ({result.examples:,} examples, {result.targets:,} targets)")
    if result.groups:
        groups = sorted(result.groups.items(), key=lambda item: item[1])
        out.print(table("group", ">right", rows=[(name, f"{share:.1%}") for name, share in groups]))


def _trained(folder: Path, checkpoint: str) -> Trained:
    """Return what a run trained; data that has changed since is refused."""
    run = open_run(folder)
    task = run.task()
    run.check_data()
    return Trained(run.model, run.load_params(checkpoint), task)


def _saved(folder: Path, checkpoint: str) -> Trained:
    """Return a model that `gf.save` wrote, with the task that it learned."""
    if checkpoint != BEST:
        raise ConfigError(f"{folder} is a saved model, which has no checkpoints", hint="leave out --checkpoint")
    loaded = load_weights(folder)
    if loaded.notes["task"] is None:
        raise ConfigError(
            f"{folder} does not say what its model learned from",
            hint=f"measure it in Python: gf.load({str(folder)!r}).evaluate(data)",
        )
    return Trained(loaded.model, loaded.params, task_of(loaded))
