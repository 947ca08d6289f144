"""`glassformer params`: the parameters, arithmetic and memory of a model."""

import click

from ..api.costs import params as count_params
from ..api.costs import read_config
from ..models.costs import ITEMSIZES, MEMORY
from .commands import command
from .options import json_option, set_option, trust_option
from .output import print_json, print_table
from .settings import parse_settings

config_argument = click.argument(
    "model", metavar="PRESET|CONFIG|MODEL", help="A preset, a JSON file with a config, or a model."
)


@command("Plan", "glassformer params gpt2", "glassformer params llama-3.1-8b --length 4096 --dtype bfloat16")
@config_argument
@click.option("--batch", type=click.IntRange(1), default=1, help="Sequences per step.")
@click.option("--length", type=click.IntRange(1), help="Tokens per sequence (default: the whole context).")
@click.option("--dtype", default="float32", help="Type of weights and activations: " + ", ".join(ITEMSIZES) + ".")
@set_option
@json_option
@trust_option
def params(model: str, batch: int, length: int | None, dtype: str, settings: tuple[str, ...], json: bool) -> None:
    """Count the parameters, arithmetic and memory of a model without allocating it."""
    config = read_config(model).replace(**parse_settings(settings))
    found = count_params(config, batch=batch, length=length, dtype=dtype)
    if not json:
        for before, table in zip((f"{model}: ", ""), found.tables(), strict=True):
            print_table(table.columns, table.rows, title=before + table.title)
        return
    facts = {"model": model, "config": config.to_dict()}
    facts["parameters"] = {"total": found.parameters, "parts": found.parts, "estimate_12LD2": found.estimate}
    facts["flops_per_token"] = {"forward": found.flops_forward, "training": found.flops_training}
    memory = {name: getattr(found, name) for name in MEMORY}
    print_json({**facts, "batch": batch, "length": found.length, "dtype": dtype, "memory_bytes": memory})
