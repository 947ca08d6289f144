"""`glassformer verify`: a model beside its reference implementation, layer by layer."""

from dataclasses import asdict

import typer

from ..loading import is_run, load_weights, locate
from ..weights.verify import LIMIT
from ..weights.verify import verify as compare
from .generate import ModelArgument
from .output import JsonOption, console, print_json, table


def verify(model: ModelArgument, json: JsonOption = False) -> None:
    """Compare every layer of a model with the same weights in `transformers`; exit 1 if one departs."""
    place = locate(model)
    published = place.is_dir() and not is_run(place)
    result = compare(load_weights(place), place if published else None)
    departs = result.first_departure
    if json:
        rows = [{**asdict(row), "agrees": row.agrees} for row in result.rows]
        print_json(
            {"model": model, "tokens": result.tokens, "limit": LIMIT, "first_departure": departs, "layers": rows}
        )
    else:
        shown = [
            (row.layer, f"{row.largest:.4g}", f"{row.difference:.1e}", "" if row.agrees else "departs")
            for row in result.rows
        ]
        title = f"{model}, {result.tokens} tokens, float32"
        out = console()
        out.print(table("layer", ">largest", ">difference", "", rows=shown, title=title))
        verdict = "all layers agree with the reference" if departs is None else f"{departs} is the first that departs"
        out.print(f"{verdict}: at most {LIMIT:.0e} of the largest number is allowed", markup=False)
    if departs is not None:
        raise typer.Exit(1)
