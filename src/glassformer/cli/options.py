"""Arguments and options that several commands share."""

from pathlib import Path

import click

MODEL_HELP = "A run folder, a folder or file of published weights, a pulled model, or hf:org/name."
PATH = click.Path(path_type=Path)

model_argument = click.argument("model", help=MODEL_HELP)
json_option = click.option("--json", is_flag=True, help="Print one JSON object instead of tables.")
truncate_option = click.option(
    "--truncate", is_flag=True, help="Of a prompt longer than the context, read its end instead of refusing it."
)
set_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a setting; may be repeated. `glassformer settings` lists them.",
)
engine_option = click.option(
    "--engine",
    metavar="NAME",
    callback=lambda ctx, _, name: name if name is None else _set_engine(name),
    help="Engine: cpu (compiled kernels, the default), numpy (every op as its source reads) or jax.",
)
weights_option = click.option(
    "--weights",
    metavar="TYPE",
    help="How weights are stored: float32, float16, int8, int4, or as-stored in a GGUF file. Fewer bits are faster "
    "(default: as-stored for GGUF, else float32). The engine jax: float32, bfloat16 or float16.",
)
temperature_option = click.option(
    "--temperature", type=float, help="Below 1 safer, above 1 wilder; 0 takes the likeliest token (default: 0.8)."
)
top_k_option = click.option("--top-k", type=int, help="Sample from the k likeliest tokens only.")
top_p_option = click.option(
    "--top-p", type=float, help="Sample from the fewest tokens that together have this probability."
)
lens_option = click.option(
    "--lens", is_flag=True, help="Show what each layer would have predicted in the place of every token."
)


def _set_engine(name: str) -> str:
    from ..dispatch import set_engine  # loads NumPy, which commands that only list do without

    set_engine(name)
    return name
