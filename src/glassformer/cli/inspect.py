"""`glassformer inspect`: pictures of what happens inside a trained model."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..arrays import check_length
from ..config import EncoderDecoderConfig
from ..errors import ConfigError, WeightsError
from ..generation.sampling import Sampling
from ..generation.writer import generate_steps
from ..interpret import Labels, token_labels
from ..loading import is_run, load_weights, locate
from ..models import Batch
from ..plots import inspect_model
from ..runs.run import Run, open_run
from ..runs.trained import Trained
from ..text import PublishedTokenizer
from ..weights.loaded import Loaded
from .generate import ModelArgument
from .output import JsonOption, console, print_json

ANSWER = 32
"""Tokens of an encoder-decoder's answer that are shown at most."""
EXAMPLES = 32
"""What the heads do is averaged over so many held-out examples when no input is given."""


def inspect(
    model: ModelArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="What the model reads; held-out data of a run if left out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the pictures (default: pictures, in the run folder).")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="Which parameters: best or latest.")] = "best",
    json: JsonOption = False,
) -> None:
    """Draw attention, predictions, positions and layers of a model into one page."""
    place = locate(model)
    if is_run(place):
        run = open_run(place)
        trained = Trained(run.model, run.load_params(checkpoint), run.task())
        paths = draw(run, trained, place / "pictures" if out is None else out, text)
    else:
        paths = draw_published(place, model, Path("pictures") if out is None else out, text)
    if json:
        print_json({"page": str(paths[0]), "pictures": [str(path) for path in paths[1:]]})
    else:
        console().print(f"{len(paths) - 1} pictures; open {paths[0]}", markup=False)


def draw(run: Run, trained: Trained, folder: Path, text: str | None = None) -> list[Path]:
    """Draw everything about a trained model and one input, or some held-out examples; return the files."""
    task = trained.task
    batch = next(iter(task.held_out.batches(EXAMPLES))) if text is None else trained.example(text)
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


def draw_published(place: Path, name: str, folder: Path, text: str | None) -> list[Path]:
    """Draw everything about a published model and one input; return the files."""
    if text is None:
        raise ConfigError("a published model has no data of its own to look at", hint="pass an INPUT")
    loaded = load_weights(place)
    batch = published_batch(loaded, name, text)
    labels = Labels(tokens=token_labels(loaded.tokenizer))
    summary = [("model", name), ("family", loaded.family), ("input", text)]
    return inspect_model(
        loaded.model, loaded.params, batch, folder, labels=labels, title=f"Inside {name}", summary=summary
    )


def published_batch(loaded: Loaded, name: str, text: str) -> Batch:
    """Return a typed input as a batch of one; an encoder-decoder's own answer to it stands behind its start token."""
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise WeightsError(f"{name} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    around = {"specials": True} if isinstance(tokenizer, PublishedTokenizer) else {}
    ids = tokenizer.encode(text, **around)[None]
    check_length(ids.shape[-1], loaded.config.context, what="the input")
    if not isinstance(loaded.config, EncoderDecoderConfig):
        return Batch(ids)
    steps = generate_steps(
        loaded.model,
        loaded.params,
        [[loaded.start_id or 0]],
        sources=[ids[0]],
        max_new_tokens=ANSWER,
        sampling=Sampling(temperature=0.0),
        stop_ids=loaded.end_ids,
        known=tokenizer.size,
    )
    answer = [int(step.ids[0]) for step in steps]
    return Batch(np.array([[loaded.start_id or 0, *answer]]), source=ids)


def task_labels(trained: Trained) -> Labels:
    """Return how the ids of a task's model are called."""
    task = trained.task
    return Labels(
        tokens=token_labels(task.answer_tokenizer),
        source=token_labels(task.tokenizer),
        classes=lambda number: task.decode_answer([number]),
    )
