"""`glassformer eval`."""

from pathlib import Path
from typing import Annotated

import typer

from ..runs.run import open_run
from ..training.evaluate import evaluate as measure
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
    result = measure(opened.model, params, task.held_out, metric=task.metric, groups=task.groups)
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
