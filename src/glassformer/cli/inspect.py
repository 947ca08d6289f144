"""`glassformer inspect`: pictures of what happens inside a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..interpret import Labels, token_labels
from ..models import Batch
from ..training.run import Run, open_run
from ..training.trained import Trained
from .output import JsonOption, console, print_json

EXAMPLES = 32
"""What the heads do is averaged over so many held-out examples when no input is given."""


def inspect(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `glassformer train` wrote.")],
    text: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="What the model reads; held-out data if left out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the pictures (default: RUN/pictures).")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="Which parameters: best or latest.")] = "best",
    json: JsonOption = False,
) -> None:
    """Draw attention, predictions, positions and layers of a trained model into one page."""
    opened = open_run(run)
    trained = Trained(opened.model, opened.load_params(checkpoint), opened.task())
    folder = run / "pictures" if out is None else out
    paths = draw(opened, trained, folder, text)
    if json:
        print_json({"page": str(paths[0]), "pictures": [str(path) for path in paths[1:]]})
    else:
        console().print(f"{len(paths) - 1} pictures; open {paths[0]}", markup=False)


def draw(run: Run, trained: Trained, folder: Path, text: str | None = None) -> list[Path]:
    """Draw everything about a trained model and one input, or some held-out examples; return the files."""
    from ..plots import inspect_model

    task = trained.task
    batch = _held_out(trained) if text is None else trained.example(text)
    summary: list[tuple[str, Any]] = [("task", task.name), ("learns to", task.summary)]
    if text is not None:
        summary.append(("input", text))
    return inspect_model(
        trained.model,
        trained.params,
        batch,
        folder,
        labels=task_labels(trained),
        metrics=run.metrics(),
        title=f"Inside the model that learned {task.name!r}",
        summary=summary,
    )


def task_labels(trained: Trained) -> Labels:
    """Return how the ids of a task's model are called."""
    task = trained.task
    return Labels(
        tokens=token_labels(task.answer_tokenizer),
        source=token_labels(task.tokenizer),
        classes=lambda number: task.decode_answer([number]),
    )


def _held_out(trained: Trained) -> Batch:
    return next(iter(trained.task.held_out.batches(EXAMPLES)))
