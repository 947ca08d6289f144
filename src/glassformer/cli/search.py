"""`glassformer search`: the passages of an index that are nearest to a question."""

from pathlib import Path

import click

from ..api.passages import read_index
from ..api.passages import search as search_index
from ..core.format import shorten
from ..progress.display import waiting
from ..text import printable
from .commands import command
from .options import PATH, json_option, text_argument
from .output import console, print_json, print_table

WIDTH = 240
"""Characters of a passage on a terminal; --json and pipes have all."""


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
    width = WIDTH if console().is_terminal else max(len(hit.text) for hit in hits)
    texts = [printable(shorten(" ".join(hit.text.split()), width)) for hit in hits]
    rows = [(f"{hit.cosine:.3f}", f"{hit.file}:{hit.line}", text) for hit, text in zip(hits, texts, strict=True)]
    print_table((">cosine", "place", "passage"), rows)
