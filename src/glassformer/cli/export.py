"""`glassformer export`: a model in the form that other programs read."""

from pathlib import Path
from typing import Annotated

import typer

from ..loading import load_weights
from ..settings import check_known
from ..weights.export import export_folder, has_tokenizer
from .generate import ModelArgument
from .output import JsonOption, console, print_json, talk

FORMATS = ("hf",)


def export(
    model: ModelArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder to write into.")],
    to: Annotated[str, typer.Option(help="The form: hf, a folder as Hugging Face publishes them.")] = "hf",
    json: JsonOption = False,
) -> None:
    """Write a model into a new folder that `transformers` reads, with the same logits."""
    check_known("there is no format", to, FORMATS)
    loaded = load_weights(model)
    files = export_folder(loaded, folder)
    if loaded.tokenizer is not None and not has_tokenizer(files):
        talk(f"note: the {loaded.tokenizer.kind} tokenizer has no published form and was left out")
    if json:
        print_json({"folder": str(folder), "files": [str(file.relative_to(folder)) for file in files]})
    else:
        console().print(f"{len(files)} files in {folder}", markup=False)
