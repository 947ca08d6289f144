"""`glassformer eval`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .. import dispatch
from ..arrays import Tree
from ..data import Task
from ..execution import MeshShape
from ..models import build
from ..runs.run import Run, open_run
from ..training import Evaluation
from ..tree import count
from .devices import EngineOption
from .output import JsonOption, console, print_json, table


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `glassformer train` wrote.")],
    checkpoint: Annotated[str, typer.Option(help="Which parameters: best or latest.")] = "best",
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Measure a trained model on all of its held-out data."""
    opened = open_run(run)
    task = opened.task()
    opened.check_data()
    params = opened.load_params(checkpoint)
    result = measure(opened, params, task)
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


def measure(run: Run, params: Tree, task: Task) -> Evaluation:
    """Measure parameters by the engine in use; under JAX as the run says, but on one device, whatever it trained on."""
    engine = dispatch.current()
    model = run.model
    if engine.library == "jax":
        model = build(run.config, run.execution.replace(mesh=MeshShape(), rules=()))
    trainer = engine.trainer(model, replace(run.recipe, accumulate=1))
    return trainer.evaluate(params, task.held_out, metric=task.metric, groups=task.groups)
