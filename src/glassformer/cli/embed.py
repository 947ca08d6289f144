"""`glassformer embed`: one vector for each text, or how similar texts are."""

from typing import Annotated

import typer
from rich.text import Text

from ..errors import ConfigError
from ..loading import load_weights
from ..weights.sentence import embed as embed_texts
from ..weights.sentence import similarities
from .generate import ModelArgument
from .output import JsonOption, console, print_json, table

WIDEST = 40


def embed(
    model: ModelArgument,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT…", help="What to turn into vectors.")],
    json: JsonOption = False,
) -> None:
    """Show how similar texts are to an encoder: the cosine of the angle between their vectors.

    With --json, the vectors themselves.
    """
    if not all(texts):
        raise ConfigError("a text is empty", hint="leave it out")
    vectors = embed_texts(load_weights(model), texts)
    cosines = similarities(vectors)
    if json:
        rows = [{"text": text, "vector": vector} for text, vector in zip(texts, vectors.tolist(), strict=True)]
        print_json({"model": model, "width": vectors.shape[-1], "embeddings": rows, "cosine": cosines.tolist()})
        return
    numbers = [str(number + 1) for number in range(len(texts))]
    shown = table(">", "text", *(f">{number}" for number in numbers), title="cosine similarity")
    for number, text, row in zip(numbers, texts, cosines, strict=True):
        short = text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
        shown.add_row(number, Text(short), *(f"{value:.3f}" for value in row))
    console().print(shown)
