"""`glassformer export`: a model in the form that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError, did_you_mean
from ..loading import load_weights
from ..weights.export import export_folder, has_tokenizer
from .generate import MODEL_HELP
from .output import JsonOption, console, print_json, talk

FORMATS = ("hf",)


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder to write into.")],
    to: Annotated[str, typer.Option(help="The form: hf, a folder as Hugging Face publishes them.")] = "hf",
    json: JsonOption = False,
) -> None:
    """Write a model into a new folder that `transformers` reads, with the same logits."""
    if to not in FORMATS:
        raise ConfigError(f"there is no format {to!r}", hint=did_you_mean(to, FORMATS))
    loaded = load_weights(model)
    files = export_folder(loaded, folder)
    if loaded.tokenizer is not None and not has_tokenizer(files):
        talk(f"note: the {loaded.tokenizer.kind} tokenizer has no published form and was left out")
    if json:
        print_json({"folder": str(folder), "files": [str(file.relative_to(folder)) for file in files]})
    else:
        console().print(f"{len(files)} files in {folder}", markup=False)
