"""`glassformer embed`: one vector for each text, how similar texts are, and files of vectors to search in."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..api.loading import read_model
from ..api.passages import Index, index
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.files import write_new
from ..core.format import shorten
from ..data.tables import Row, Table
from ..generation.sampling import check_finite
from ..progress.display import waiting
from ..weights.sentence import similarities, unit_vectors
from .commands import command
from .options import PATH, json_option, model_argument
from .output import console, log, plural, print_json, print_table
from .rows import STDIN, check_out, writing_rows
from .stdin import read_lines

WIDTH = 40
MATRIX, NEAREST = 6, 3
"""On a terminal, up to this many texts are compared in a matrix; of more, each is shown with its nearest texts."""
BLOCK = 512
"""Texts that are compared with all others at a time."""


@command(
    "Write and predict",
    'glassformer embed minilm "a cat" "a kitten" "a car"',
    "glassformer embed minilm --file notes/ --index notes.npz",
    "glassformer embed minilm --file notes.txt --nearest 2",
)
@model_argument
@click.argument("texts", metavar="[TEXT]...", nargs=-1, help="Texts to embed; - or none reads each line of stdin.")
@click.option(
    "--file",
    type=PATH,
    metavar="FILE",
    help="A file to read: each row of a table, paragraph of a folder or Markdown file, or line of another file.",
)
@click.option("--text", metavar="COLUMN", help="Of a table: the column of texts (default: found by its name).")
@click.option("--nearest", type=click.IntRange(1), metavar="N", help="Show the N nearest texts of each text.")
@click.option("--npy", type=PATH, metavar="OUT", help="Write the vectors as a NumPy file, (texts, width).")
@click.option("--csv", type=PATH, metavar="OUT", help="Write texts and vectors: .csv, .tsv or .jsonl.")
@click.option(
    "--index", "into", type=PATH, metavar="OUT", help="Write an index for `glassformer search`, or update it."
)
@json_option
def embed(
    model: str,
    texts: tuple[str, ...],
    file: Path | None,
    text: str | None,
    nearest: int | None,
    npy: Path | None,
    csv: Path | None,
    into: Path | None,
    json: bool,
) -> None:
    """Compare texts by the cosine similarity of their embeddings, or write the embeddings into files.

    A few texts are compared in a matrix; for more, the nearest texts of each are shown. With --json, the output holds
    the vectors. `embed minilm --file notes/ --index notes.npz` prepares a search over a folder of notes.
    """
    data = _data(texts, file, text)
    for out, ending in ((npy, ".npy"), (into, ".npz")):
        if out is not None and out.suffix != ending:
            raise ConfigError(f"{out} does not end in {ending}", hint=f"choose a name such as {out.stem}{ending}")
    if csv is not None:
        check_out(csv, file)
    with waiting(f"reading {model}"):
        encoder = read_model(model)
    with waiting(f"embedding {'texts' if file is None else file}"):
        found = index(encoder, data, into, text=text)
    for note in found.notes:
        log(note)
    check_finite(unit_vectors(found.vectors), "vectors")
    _write(found, npy, csv)
    if json:
        _print_json(found, nearest)
    elif nearest is None and (npy or csv or into):
        return
    elif nearest is None and (len(found.passages) <= MATRIX or not console().is_terminal):
        cosines = similarities(found.vectors)
        names = [(str(i), shorten(one.text, WIDTH)) for i, one in enumerate(found.passages)]
        cells = [(*name, *(f"{cosine:.3f}" for cosine in row)) for name, row in zip(names, cosines, strict=True)]
        print_table((">", "text", *(f">{i}" for i in range(len(cells)))), cells, title="cosine similarity")
    else:
        near = nearest_texts(found.vectors, nearest or NEAREST)
        short = [shorten(one.text, WIDTH) for one in found.passages]
        rows = [(short[i], f"{cosine:.3f}", short[j]) for i, row in enumerate(near) for j, cosine in row]
        print_table(("text", ">cosine", "nearest"), rows, title="nearest texts by cosine similarity")


def _data(texts: tuple[str, ...], file: Path | None, column: str | None) -> Path | list[str]:
    """Return where the texts are, or those of the command line or stdin."""
    if file is not None and file != STDIN:
        if texts:
            raise ConfigError("texts are given twice, as arguments and by --file", hint="give them once")
        return file
    if column is not None:
        raise ConfigError("--text belongs to --file", hint="leave out --text")
    if not all(texts):
        raise ConfigError("a text is empty", hint="leave it out")
    read = list(texts) if texts and texts != ("-",) else read_lines()
    if not any(one.strip() for one in read):
        hint = "pass texts, --file FILE, or one text on each line of stdin"
        raise ConfigError("there is nothing to embed", hint=hint)
    return read


def _write(found: Index, npy: Path | None, csv: Path | None) -> None:
    """Write vectors into the files that are asked for, and say so."""
    rows, width = found.vectors.shape
    if npy is not None:
        content = io.BytesIO()
        np.save(content, found.vectors)
        log(f"{write_new(npy, content.getvalue())}: {rows:,} vectors of {width:,} numbers")
    if csv is not None:
        table = Table("", ("file", "line", "text"), [Row(*one[1:], (*one[1:], one.text)) for one in found.passages])
        with writing_rows(table, [str(number) for number in range(width)], csv) as write:
            write(found.vectors.tolist())
        log(f"{csv}: {rows:,} texts with vectors of {width:,} numbers")
    if found.path is not None:
        log(f"{found.path}: {plural(rows, 'passage')}; `glassformer search {found.path} TEXT` finds the nearest")


def _print_json(found: Index, nearest: int | None) -> None:
    """Print all vectors, and either all cosines or the nearest texts of each."""
    rows: list[dict[str, Any]] = [
        {**({"file": one.file, "line": one.line} if one.file else {}), "text": one.text, "vector": vector}
        for one, vector in zip(found.passages, found.vectors.tolist(), strict=True)
    ]
    more: dict[str, Any] = {}
    if nearest is None:
        more["cosine"] = similarities(found.vectors).tolist()
    else:
        for row, near in zip(rows, nearest_texts(found.vectors, nearest), strict=True):
            row["nearest"] = [{"number": j, "cosine": cosine} for j, cosine in near]
    print_json({"model": found.model, "width": found.vectors.shape[-1], "embeddings": rows, **more})


def nearest_texts(vectors: Array, count: int) -> Iterator[list[tuple[int, float]]]:
    """Yield for each vector the numbers of the nearest others, and their cosines."""
    units = unit_vectors(vectors)
    for start in range(0, len(units), BLOCK):
        for i, cosines in enumerate(units[start : start + BLOCK] @ units.T, start):
            order = (-cosines).argsort(kind="stable")[: count + 1].tolist()
            yield [(j, float(cosines[j])) for j in order if j != i][:count]
