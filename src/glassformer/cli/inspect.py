"""`glassformer inspect`: a page and figures of what happens inside a trained model."""

import re
from pathlib import Path
from typing import Any

import click

from ..api.loading import is_run, locate, read_model
from ..core.errors import ConfigError, GlassformerError
from ..core.files import new_folder, write_new
from ..core.settings import check_known
from ..generation.answer import example
from ..progress.display import waiting
from ..runs.run import open_run
from ..training.checkpoint import BEST
from ..web.page_export import Show, models_page
from ..weights.loaded_model import LoadedModel
from .commands import command
from .options import CHECKPOINT, json_option, model_argument, out_option, text_argument
from .output import log, print_json

EXAMPLES = 32
"""What the heads do is averaged over this many held-out examples when no input is given."""
PAGE = "index.html"


@command("Look inside", "glassformer inspect runs/majority 11110222", "glassformer inspect runs/text --theme dark")
@model_argument
@text_argument("What the model reads; of a run, held-out data if left out.", required=False)
@out_option("a folder for page and figures (default: a new one, pictures in the run folder or pictures/MODEL)")
@click.option("--checkpoint", type=CHECKPOINT, help="Which parameters of a run: best or latest (default: best).")
@click.option("--theme", default="auto", help="Colors of the figures: light, dark, or auto for both.")
@click.option("--format", "form", metavar="TYPE", default="png", help="Format: png, svg or pdf.")
@json_option
def inspect(
    model: str, text: str | None, out: Path | None, checkpoint: str | None, theme: str, form: str, json: bool
) -> None:
    """Write the explorer's page of a model and an input, and figures of all there is to see."""
    with waiting("loading matplotlib", compiles=False):
        from ..plots import FORMATS, THEMES, inspect_model
    check_known("there is no theme", theme, ("auto", *THEMES))
    check_known("there is no format", form, FORMATS)
    place = locate(model)
    figures: dict[str, Any] = {"theme": None if theme == "auto" else theme, "form": form}
    if is_run(place):
        run = open_run(place)
        task = run.task()
        opened = LoadedModel.of_task(run.model, run.load_params(checkpoint or BEST), task)
        batch = next(iter(task.held_out.batches(EXAMPLES))) if text is None else example(opened, task, text)
        folder, name = place / "pictures", place.resolve().name
        figures["metrics"] = run.metrics()
    else:
        if checkpoint is not None:
            raise ConfigError(f"{model} is no run, so it has no checkpoints", hint="leave out --checkpoint")
        if text is None:
            raise ConfigError("a published model has no data of its own to look at", hint="pass a text")
        with waiting(f"reading {model}"):
            opened, name = read_model(model), folder_name(model)
        batch = opened.batch(text)._replace(targets=None)
        folder = Path("pictures") / name
    folder = new_folder(folder) if out is None else out
    with waiting("drawing figures") as show:
        paths = inspect_model(opened, batch, folder, progress=show, **figures)
    with waiting("writing the page") as show:
        page = write_page(name, opened, text, folder / PAGE, show)
    if json:
        print_json({"page": None if page is None else str(page), "figures": [str(path) for path in paths]})
        return
    count = len({path.stem.removesuffix("-dark") for path in paths})
    both = ", light and dark" if theme == "auto" else ""
    print(f"{count} figures{both} in {folder}" + ("" if page is None else f"; open {page}"))


def write_page(name: str, model: LoadedModel, text: str | None, path: Path, show: Show) -> Path | None:
    """Write the explorer's page of a model that reads a text; where it cannot be made, say why and return None."""
    try:
        page = models_page([(name, model, text)], show=show)
    except GlassformerError as error:
        log(f"no page: {error.fact}")
        return None
    return write_new(path, page.encode())


def folder_name(model: str) -> str:
    """Return the name of a model without where it is: smollm2 for smollm2, name for hf:org/name or ./name.gguf."""
    last = model.replace("\\", "/").rstrip("/").split("/")[-1]
    last = last.removesuffix(".gguf").removesuffix(".safetensors").split(":")[-1]
    return re.sub(r"[^\w.-]+", "-", last).strip(".-") or "model"
