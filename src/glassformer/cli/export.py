"""`glassformer export`: a model in the format of other programs."""

from pathlib import Path
from typing import Any

import click

from ..api.loading import read_model
from ..api.trained_model import FORMATS
from ..core.errors import ConfigError
from ..core.format import bytes_text
from ..core.settings import check_known
from ..progress.display import waiting
from ..text.published import TOKENIZER
from ..training.peft import export_adapter
from ..weights.export import export_folder
from ..weights.gguf import SUFFIX, TYPES, export_gguf
from .commands import command
from .options import PATH, json_option, model_argument
from .output import log, print_json


@command("Models", "glassformer export minilm exported", "glassformer export runs/text text.gguf")
@model_argument
@click.argument("path", type=PATH, help="A new folder to write into, or a new .gguf file.")
@click.option(
    "--format",
    "form",
    metavar="TYPE",
    help="Format: hf, a folder as Hugging Face publishes them; gguf, a file for llama.cpp; or peft, the LoRA adapters "
    "of a run alone (default: by the name).",
)
@click.option(
    "--weights", metavar="TYPE", help="How weights are stored: in a GGUF file f32, f16 or q8_0 (default: f32)."
)
@json_option
def export(model: str, path: Path, form: str | None, weights: str | None, json: bool) -> None:
    """Write a model as a folder that `transformers` reads, a GGUF file for llama.cpp, or adapters for PEFT."""
    chosen = form or ("gguf" if path.suffix == SUFFIX else "hf")
    check_known("there is no format", chosen, FORMATS)
    if chosen != "gguf" and weights is not None:
        raise ConfigError("--weights is a setting of GGUF files", hint="leave it out, or add --format gguf")
    weights = weights or "f32"
    check_known("there is no type of weights", weights, TYPES)
    with waiting(f"reading {model}"):
        loaded = read_model(model)
    if chosen == "gguf":
        with waiting(f"writing {path}"):
            size = export_gguf(loaded, path, weights=weights).stat().st_size
        if not loaded.end_ids:
            log("note: this model has no end token, and llama.cpp takes another for one: run it with --ignore-eos")
        report: dict[str, Any] = {"file": str(path), "bytes": size, "weights": weights}
        said = f"{path}, {bytes_text(size)}"
    else:
        with waiting(f"writing {path}"):
            files = export_adapter(loaded, path) if chosen == "peft" else export_folder(loaded, path)
        if chosen == "hf" and loaded.tokenizer is not None and all(file.name != TOKENIZER for file in files):
            log(f"note: the {loaded.tokenizer.kind} tokenizer has no published form and was left out")
        report = {"folder": str(path), "files": [str(file.relative_to(path)) for file in files]}
        said = f"{len(files)} files in {path}"
    if json:
        print_json(report)
    else:
        print(said)
