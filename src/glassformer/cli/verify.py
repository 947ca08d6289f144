"""`glassformer verify`: compare a model with its reference implementation, layer by layer."""

from dataclasses import asdict

import click

from ..api.loading import is_run, locate, read_model
from ..progress.display import waiting
from ..weights.verify import LIMIT
from ..weights.verify import verify as compare
from .commands import command
from .options import json_option, model_argument
from .output import log, print_json, print_table


@command("Models", "glassformer verify minilm")
@model_argument
@json_option
def verify(model: str, json: bool) -> None:
    """Compare every layer of a model with the same weights in `transformers`. Exit 1 if one differs."""
    place = locate(model)
    published = place.is_dir() and not is_run(place)
    with waiting(f"comparing {model} with transformers"):
        result = compare(read_model(model), place if published else None)
    departs = result.first_departure
    if json:
        rows = [{**asdict(row), "agrees": row.agrees} for row in result.rows]
        facts = {"model": model, "tokens": result.tokens, "limit": LIMIT}
        print_json({**facts, "first_departure": departs, "layers": rows})
    else:
        cells = [
            (row.layer, f"{row.largest:.4g}", f"{row.difference:.1e}", "" if row.agrees else "differs")
            for row in result.rows
        ]
        title = f"{model}, {result.tokens} tokens, float32"
        print_table(("layer", ">largest", ">difference", ""), cells, title=title)
        verdict = "all layers agree with the reference" if departs is None else f"{departs} is the first that differs"
        log(f"{verdict}; the limit is {LIMIT:.0e} of the largest number")
    if departs is not None:
        raise click.exceptions.Exit(1)
