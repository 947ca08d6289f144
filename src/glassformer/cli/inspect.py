"""`glassformer inspect`: pictures of what happens inside a trained model."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..data import Task
from ..errors import ConfigError, did_you_mean
from ..generation.answer import example
from ..interpret.reading import labels_of
from ..loading import is_run, locate, read_model
from ..plots import FORMATS, THEMES, Section, Table, inspect_model
from ..runs.listing import changed_options
from ..runs.run import Run, open_run
from ..trained_model import TrainedModel
from ..training.checkpoint import BEST
from .options import PATH, json_option, model_argument
from .output import log, print_json
from .settings import default_text

EXAMPLES = 32
"""What the heads do is averaged over so many held-out examples when no input is given."""

OF_THE_DATA = frozenset(
    ("data", "train", "validation", "held_out", "held_out_each", "longest", "context", "tokenizer", "bpe_size")
)
"""Options of tasks that leave what is learned as the line of the task says it."""
SAMPLE = 400
"""Tokens that a language model writes for the page."""
LINES = 10
"""What a model of lines writes for the page."""


@click.command()
@model_argument
@click.argument(
    "text", metavar="[INPUT]", required=False, help="What the model reads; of a run, held-out data if left out."
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Folder for the page (default: pictures in the run folder, or pictures/MODEL).",
)
@click.option("--checkpoint", help="Which parameters of a run: best or latest (default: best).")
@click.option("--theme", default="auto", help="Colors: light, dark, or auto for both, as the reader's browser asks.")
@click.option("--format", "copies", default="png", help="Write the figures as svg or pdf too, beside the png files.")
@json_option
def inspect(
    model: str, text: str | None, out: Path | None, checkpoint: str | None, theme: str, copies: str, json: bool
) -> None:
    """Draw attention, predictions, positions and layers of a model into one page."""
    check_choice("theme", theme, ("auto", *THEMES))
    check_choice("format", copies, FORMATS)
    place = locate(model)
    how: dict[str, Any] = {"theme": None if theme == "auto" else theme, "copies": copies}
    with progress(quiet=json) as show:
        if is_run(place):
            run = open_run(place)
            trained = TrainedModel.of_task(run.model, run.load_params(checkpoint or BEST), run.task())
            paths = draw(run, trained, place / "pictures" if out is None else out, text, progress=show, **how)
        else:
            if checkpoint is not None:
                raise ConfigError(f"{model} is no run, so it has no checkpoints", hint="leave out --checkpoint")
            folder = Path("pictures") / folder_name(model) if out is None else out
            paths = draw_published(model, folder, text, progress=show, **how)
    if json:
        print_json({"page": str(paths[0]), "pictures": [str(path) for path in paths[1:]]})
    else:
        print(_summary(paths, theme))


def _summary(paths: Sequence[Path], theme: str) -> str:
    """Say how many pictures were drawn, however many files each has, and where they are to be seen."""
    drawn = {path.stem.removesuffix("-dark") for path in paths[1:]}
    return f"{len(drawn)} pictures{', light and dark' if theme == 'auto' else ''}; open {paths[0]}"


def draw(run: Run, trained: TrainedModel, folder: Path, text: str | None = None, **how: Any) -> list[Path]:
    """Draw everything about a trained model and one input, or some held-out examples; return the files."""
    task = trained.task
    assert task is not None
    batch = next(iter(task.held_out.batches(EXAMPLES))) if text is None else example(trained, task, text)
    name = run.folder.resolve().name
    return inspect_model(
        trained.model,
        trained.params,
        batch,
        folder,
        labels=labels_of(trained),
        metrics=run.metrics(),
        title=f"Inside {name}",
        intro=described(run, task),
        summary=[("task", task.name)],
        sections=answers(trained),
        **how,
    )


def described(run: Run, task: Task) -> str:
    """Say what a model learned: by the reader's own file and options where there are some, else as the task does."""
    data = run.task_options.get("data")
    learned = "Learned" if run.base is None else f"Began as {run.base.source}, learned"
    options = {name: value for name, value in changed_options(run).items() if name not in OF_THE_DATA}
    named = ", ".join(f"{name} {default_text(value)}" for name, value in options.items())
    chosen = f", with {named}" if named else ""
    if data is not None:
        return f"{learned} from {data}{chosen}."
    # The line of a task tells of its defaults, and of what it could have been instead.
    summary = re.sub(r", or (your|of more)\b.*", "", task.summary)
    return f"{learned}: {summary if summary and not options else f'the task {task.name}'}{chosen}."


def answers(trained: TrainedModel) -> list[Section]:
    """Return what the model says when it is asked the prompts of its task, as a section of the page."""
    assert trained.task is not None
    if trained.task.prompts == ("",):
        # It needs no beginning, and ends by itself.
        lines = [trained.ask("", length=SAMPLE, seed=seed) for seed in range(LINES)]
        return [Section("What it writes", f"Drawn at random, with seeds 0 to {LINES - 1}.", samples=["\n".join(lines)])]
    said = trained.samples(length=SAMPLE)
    if not said:
        return []
    if trained.task.metric == "none":
        text = "The model goes on from a beginning, drawn at random with seed 0."
        return [Section("What it writes", text, samples=[f"{prompt}{reply}" for prompt, reply in said])]
    return [
        Section(
            "What it answers",
            "The prompts of the task, and what the model says to them.",
            tables=[Table(("asked", "answered"), said)],
        )
    ]


def draw_published(name: str, folder: Path, text: str | None, **how: Any) -> list[Path]:
    """Draw everything about a published model and one input; return the files."""
    if text is None:
        raise ConfigError("a published model has no data of its own to look at", hint="pass an INPUT")
    loaded = read_model(name)
    batch, labels = loaded.batch(text)._replace(targets=None), labels_of(loaded)
    short = folder_name(name)
    summary = [("model", short), ("family", loaded.family)]
    title = f"Inside {short}"
    return inspect_model(loaded.model, loaded.params, batch, folder, labels=labels, title=title, summary=summary, **how)


def folder_name(model: str) -> str:
    """Return the name of a model without where it is: smollm2 for smollm2, name for hf:org/name or ./name.gguf."""
    last = model.replace("\\", "/").rstrip("/").split("/")[-1]
    last = last.removesuffix(".gguf").removesuffix(".safetensors").split(":")[-1]
    return re.sub(r"[^\w.-]+", "-", last).strip(".-") or "model"


def check_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a word that is none of those to choose from."""
    if value not in choices:
        raise ConfigError(f"there is no {what} {value!r}", hint=did_you_mean(value, choices))


@contextlib.contextmanager
def progress(
    *, quiet: bool, doing: str = "drawing", things: str = "pictures"
) -> Iterator[Callable[[int, int, str], None]]:
    """Yield what shows how far the drawing is, on stderr: a bar on a terminal, one line in a pipe."""
    screen = Console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda done, total, name: None if quiet or done else log(f"{doing} {total} {things} ...")
        return
    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=screen, transient=True) as bars:
        task = bars.add_task("reading the model", total=None)
        yield lambda done, total, name: bars.update(task, completed=done, total=total, description=name)
