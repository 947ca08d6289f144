"""`glassformer embed` and `search`: one vector for each text, how similar texts are, and files of vectors to search."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..api.loading import read_model
from ..api.passages import Index, index, read_index
from ..api.passages import search as search_index
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.files import write_new
from ..core.format import shorten
from ..data.tables import Row, Table
from ..generation.sampling import check_finite
from ..progress.display import waiting
from ..text import printable
from ..weights.sentence import similarities, unit_vectors
from .commands import command
from .options import PATH, gathered, json_option, model_argument, text_argument
from .output import console, log, plural, print_json, print_table
from .rows import STDIN, TextOptions, check_out, text_options, writing_rows

WIDTH, PASSAGE_WIDTH = 40, 240
"""Characters of a text, and of a passage that was found, on a terminal; --json and pipes have all of a passage."""
MATRIX, NEAREST = 6, 3
"""On a terminal, up to this many texts are compared in a matrix; of more, each is shown with its nearest texts."""
BLOCK = 512
"""Texts that are compared with all others at a time."""


@dataclass(frozen=True)
class Outputs:
    """The files that the vectors are written into."""

    npy: Path | None
    csv: Path | None
    index: Path | None

    def check(self, file: Path | None) -> None:
        """Refuse names that do not fit, before anything is computed; `file` is the one that is read."""
        for out, ending in ((self.npy, ".npy"), (self.index, ".npz")):
            if out is not None and out.suffix != ending:
                raise ConfigError(f"{out} does not end in {ending}", hint=f"choose a name such as {out.stem}{ending}")
        if self.csv is not None:
            check_out(self.csv, file)

    def write(self, found: Index) -> None:
        """Write the vectors into all but the index, which is there already; log each file."""
        rows, width = found.vectors.shape
        if self.npy is not None:
            content = io.BytesIO()
            np.save(content, found.vectors)
            log(f"{write_new(self.npy, content.getvalue())}: {rows:,} vectors of {width:,} numbers")
        if self.csv is not None:
            table = Table("", ("file", "line", "text"), [Row(*one[1:], (*one[1:], one.text)) for one in found.passages])
            with writing_rows(table, [str(number) for number in range(width)], self.csv) as write:
                write(found.vectors.tolist())
            log(f"{self.csv}: {rows:,} texts with vectors of {width:,} numbers")
        if found.path is not None:
            log(f"{found.path}: {plural(rows, 'passage')}; `glassformer search {found.path} TEXT` finds the nearest")


@command(
    "Write and predict",
    'glassformer embed minilm "a cat" "a kitten" "a car"',
    "glassformer embed minilm --file notes/ --index notes.npz",
    "glassformer embed minilm --file notes.txt --nearest 2",
)
@model_argument
@text_options(
    "TEXT", "Texts to embed", "each row of a table, paragraph of a folder or Markdown file, or line of another file"
)
@click.option("--nearest", type=click.IntRange(1), metavar="N", help="Show the N nearest texts of each text.")
@click.option("--npy", type=PATH, metavar="OUT", help="Write the vectors as a NumPy file, (texts, width).")
@click.option("--csv", type=PATH, metavar="OUT", help="Write texts and vectors: .csv, .tsv or .jsonl.")
@click.option("--index", type=PATH, metavar="OUT", help="Write an index for `glassformer search`, or update it.")
@json_option
@gathered(texts=TextOptions, outputs=Outputs)
def embed(model: str, texts: TextOptions, nearest: int | None, outputs: Outputs, json: bool) -> None:
    """Compare texts by the cosine similarity of their embeddings, or write the embeddings into files.

    A few texts are compared in a matrix; for more, the nearest texts of each are shown. With --json, the output holds
    the vectors. `embed minilm --file notes/ --index notes.npz` prepares a search over a folder of notes.
    """
    data = _data(texts)
    outputs.check(texts.file)
    with waiting(f"reading {model}"):
        encoder = read_model(model)
    with waiting(f"embedding {texts.file or 'texts'}"):
        found = index(encoder, data, outputs.index, text=texts.text)
    for note in found.notes:
        log(note)
    check_finite(unit_vectors(found.vectors), "vectors")
    outputs.write(found)
    if json:
        _print_json(found, nearest)
    elif nearest is None and any((outputs.npy, outputs.csv, outputs.index)):
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


def _data(texts: TextOptions) -> Path | list[str]:
    """Return where the texts are, or those of the command line or stdin."""
    if texts.file is not None and texts.file != STDIN:
        texts.check_file("texts")
        return texts.file
    if not all(texts.inputs):
        raise ConfigError("a text is empty", hint="leave it out")
    return texts.lines("embed")


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


@command("Write and predict", 'glassformer search notes.npz "how do I close a file?" --top 3')
@click.argument("index", type=PATH, help="A file that `glassformer embed MODEL --file FILE --index INDEX` wrote.")
@text_argument("What to look for, in plain words.")
@click.option("--top", type=click.IntRange(1), default=5, help="How many passages to show.")
@json_option
def search(index: Path, text: str, top: int, json: bool) -> None:
    """Find the passages of your notes that are nearest in meaning to a question.

    The index is made once by `glassformer embed minilm --file notes/ --index notes.npz`; the same command updates it,
    and embeds only passages that are new. The cosine is 1 for the same meaning and about 0 for unrelated ones.
    """
    found = read_index(index)
    with waiting(f"searching {len(found.passages):,} passages with {found.model}"):
        hits = search_index(found, text, top=top)
    if json:
        print_json({"index": str(index), "model": found.model, "query": text, "hits": [hit._asdict() for hit in hits]})
        return
    width = PASSAGE_WIDTH if console().is_terminal else max(len(hit.text) for hit in hits)
    texts = [printable(shorten(" ".join(hit.text.split()), width)) for hit in hits]
    rows = [(f"{hit.cosine:.3f}", f"{hit.file}:{hit.line}", text) for hit, text in zip(hits, texts, strict=True)]
    print_table((">cosine", "place", "passage"), rows)
