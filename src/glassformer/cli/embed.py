"""`glassformer embed`: one vector for each text, and how similar texts are."""

from pathlib import Path

import click

from ..arrays import Array
from ..errors import ConfigError
from ..loading import read_model
from ..weights.sentence import embed as embed_texts
from ..weights.sentence import similarities
from .options import PATH, json_option, model_argument
from .output import console, print_json, print_table, shorten
from .stdin import read_lines

WIDTH = 40
MATRIX, NEAREST = 6, 3
"""On a terminal, up to this many texts are compared in a matrix; of more, each is shown with its nearest texts."""


@click.command()
@model_argument
@click.argument("texts", metavar="[TEXT]...", nargs=-1, help="Texts to embed; without any, each line of stdin.")
@click.option("--file", type=PATH, metavar="FILE", help="Embed each line of this file.")
@click.option("--nearest", type=click.IntRange(1), metavar="N", help="Show the N nearest texts of each text.")
@json_option
def embed(model: str, texts: tuple[str, ...], file: Path | None, nearest: int | None, json: bool) -> None:
    """Compare texts by the cosine similarity of their embeddings.

    A few texts are compared in a matrix; for more, the nearest texts of each are shown. With --json, the output holds
    the vectors.
    """
    if texts and file is not None:
        raise ConfigError("texts are given twice, as arguments and by --file", hint="give them once")
    if not all(texts):
        raise ConfigError("a text is empty", hint="leave it out")
    read = list(texts) or [line for line in read_lines(file) if line.strip()]
    if not read:
        raise ConfigError(
            "there is nothing to embed", hint="pass texts, --file FILE, or one text on each line of stdin"
        )
    vectors = embed_texts(read_model(model), read)
    cosines = similarities(vectors)
    if json:
        rows = [{"text": text, "vector": vector} for text, vector in zip(read, vectors.tolist(), strict=True)]
        print_json({"model": model, "width": vectors.shape[-1], "embeddings": rows, "cosine": cosines.tolist()})
    elif nearest is None and (len(read) <= MATRIX or not console().is_terminal):
        numbers = [str(number) for number in range(len(read))]
        cells = [
            (number, shorten(text, WIDTH), *(f"{value:.3f}" for value in row))
            for number, text, row in zip(numbers, read, cosines, strict=True)
        ]
        print_table((">", "text", *(f">{number}" for number in numbers)), cells, title="cosine similarity")
    else:
        _print_nearest(read, cosines, nearest or NEAREST)


def _print_nearest(texts: list[str], cosines: Array, count: int) -> None:
    """Print the nearest texts of each text."""
    rows = []
    for i, text in enumerate(texts):
        others = [j for j in (-cosines[i]).argsort(kind="stable").tolist() if j != i][:count]
        rows += [(shorten(text, WIDTH), f"{cosines[i, j]:.3f}", shorten(texts[j], WIDTH)) for j in others]
    print_table(("text", ">cosine", "nearest"), rows, title="nearest texts by cosine similarity")
