"""Search over one's own texts: passages with their vectors in one file, and those nearest to a question."""

import io
import json
import logging
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError, GlassformerError, first_line
from ..core.files import write_new
from ..core.settings import check_count, texts_of
from ..data.corpus import read_file, text_files
from ..data.tables import is_rows, is_table, read_table
from ..progress import plural
from ..text import PublishedTokenizer
from ..weights.catalog import CATALOG
from ..weights.sentence import embed, encode_texts, unit_vectors
from ..weights.stores import HUB
from .loading import load
from .trained_model import TrainedModel

FORMAT = "glassformer index 1"
MARKDOWN = (".md", ".markdown")
CLOSE = 1e-3
"""The most by which the vector of a passage may differ from the stored one: engines and libraries round differently."""
CHARACTERS_PER_TOKEN = 16
"""A text with more characters for each token of the context is cut without counting its tokens."""
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_END, _SPACE = re.compile(r"(?<=[.!?])\s+|\n"), re.compile(r"\s+")


class Passage(NamedTuple):
    """A part of a text: its file, empty for texts from Python, and the line that it begins on, from 1."""

    text: str
    file: str = ""
    line: int = 1


class Hit(NamedTuple):
    """A passage that was found, and the cosine of its vector with that of the question."""

    cosine: float
    text: str
    file: str
    line: int


@dataclass(frozen=True)
class Index:
    """Passages and their vectors (N, D).

    model   the name of the model that made the vectors
    path    where it was written
    notes   what a reader of the results should know: what was left out or cut
    """

    model: str
    passages: list[Passage]
    vectors: Array
    path: Path | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Index({len(self.passages):,} passages, model {self.model!r})"


def index(
    model: TrainedModel | str,
    data: Any,
    path: str | Path | None = None,
    *,
    text: str | None = None,
) -> Index:
    """Return an index of texts for `gf.search`, and write it where a path is given.

    model   an encoder, or its name
    data    a folder or a Markdown file, cut into paragraphs; a table, of which each row is a text; another file, of
            which each line is one; a DataFrame or a list of texts. What the model cannot read at once is cut further
    path    where to write it; passages of an index that is there already, made by the same model, keep their vectors
    text    the column of a table

    >>> import glassformer as gf
    >>> model = gf.train("majority", steps=1, show=False)
    >>> gf.index(model, ["0012", "2100", "1111"])
    Index(3 passages, model 'majority')
    """
    encoder = load(model) if isinstance(model, str) else model
    passages, notes = read_passages(data, encoder, text)
    known = {} if path is None or not Path(path).exists() else _known(Path(path), encoder)
    fresh = list(dict.fromkeys(one.text for one in passages if one.text not in known))
    known |= dict(zip(fresh, embed(encoder, fresh), strict=True))
    place = None if path is None else Path(path)
    found = Index(encoder.title, passages, np.stack([known[one.text] for one in passages]), place, notes)
    if place is not None:
        about = json.dumps({"format": FORMAT, "model": found.model, "passages": passages})
        file = io.BytesIO()
        np.savez(file, vectors=found.vectors, about=np.frombuffer(about.encode(), dtype=np.uint8))
        write_new(place, file.getvalue())
    return found


def search(where: Index | str | Path, question: str, *, top: int = 5, model: TrainedModel | None = None) -> list[Hit]:
    """Return the passages of an index that are nearest to a question, the nearest first.

    where   an index, or its file
    model   the encoder that made it (None: it is loaded by its name)

    >>> import glassformer as gf
    >>> model = gf.train("majority", steps=1, show=False)
    >>> [hit.text for hit in gf.search(gf.index(model, ["0012", "2100"]), "0012", top=1, model=model)]
    ['0012']
    """
    check_count("top", top, least=1)
    [asked] = texts_of([question])
    found = where if isinstance(where, Index) else read_index(where)
    encoder = load(found.model) if model is None else model
    check_index(found, encoder)
    if doubt := _doubt(found.model, encoder, asked):
        logging.getLogger("glassformer").warning(doubt)
    cosines = unit_vectors(found.vectors) @ unit_vectors(embed(encoder, asked))
    nearest = (-cosines).argsort(kind="stable")[:top].tolist()
    return [Hit(float(cosines[i]), *found.passages[i]) for i in nearest]


def _doubt(name: str, encoder: TrainedModel, question: str) -> str:
    """Return why a model of one language may not understand a question: of its letters or words, most are not known.

    Only a model of the catalog says which language it was trained on.
    """
    language = next((one.language for one in CATALOG.values() if name in (one.name, HUB + one.hub)), "")
    letters = [letter for letter in question if letter.isalpha()]
    tokenizer = encoder.tokenizer
    if not language or not letters or not isinstance(tokenizer, PublishedTokenizer):
        return ""
    others = sum("LATIN" not in unicodedata.name(letter, "") for letter in letters)
    words = _WORD.findall(question)
    pieces = [tokenizer.encode(word) for word in words]
    lacking = sum(len(ids) > 1 or tokenizer.role_id("unk") in ids for ids in pieces)
    if 2 * others > len(letters):
        fact = f"{others} of the {len(letters)} letters of the question are not Latin"
    elif 2 * lacking > len(words):
        fact = f"its vocabulary lacks {lacking} of the {plural(len(words), 'word')} of the question"
    else:
        return ""
    return (
        f"{name} was trained on {language} texts, and {fact}: the passages that are found may have little to do with it"
    )


def read_index(path: str | Path) -> Index:
    """Read the file of an index; refuse one that is damaged."""
    path = Path(path)
    if not path.is_file():
        hint = "write it: glassformer embed minilm --file notes/ --index FILE"
        raise DataError(f"there is no index {path}", hint=hint)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            vectors, about = archive["vectors"], json.loads(archive["about"].tobytes())
        passages = [Passage(str(text), str(file), int(line)) for text, file, line in about["passages"]]
        fits = about["format"] == FORMAT and vectors.dtype.kind == "f" and vectors.shape[:1] == (len(passages),)
        if not (fits and vectors.ndim == 2 and len(passages)):
            raise ValueError("it holds no passages with their vectors")
        return Index(str(about["model"]), passages, vectors, path)
    except Exception as error:  # a damaged archive ends in nearly any of Python's errors
        fact = f"{path} is no index that can be read: {first_line(error)}"
        raise DataError(fact, hint="write it again with `glassformer embed MODEL --file FILE --index INDEX`") from error


def check_index(found: Index, model: TrainedModel) -> None:
    """Refuse an index that another model made: its first passage would have another vector."""
    fact = f"the index {found.path or ''} was made with another model than {model.title}".replace("  ", " ")
    hint = "write it again with this model, or load the one that made it"
    try:
        again = embed(model, found.passages[0].text)
    except GlassformerError as error:
        raise ConfigError(f"{fact}: {error.fact}", hint=hint) from error
    if again.shape != found.vectors.shape[1:] or not np.abs(again - found.vectors[0]).max() < CLOSE:
        raise ConfigError(fact, hint=hint)


def _known(path: Path, model: TrainedModel) -> dict[str, Array]:
    """Return the vectors of an older index by their texts; none of another model's."""
    found = read_index(path)
    try:
        check_index(found, model)
    except ConfigError:
        return {}
    return {one.text: vector for one, vector in zip(found.passages, found.vectors, strict=True)}


# --- passages --------------------------------------------------------------------------------------------------------


def read_passages(data: Any, model: TrainedModel, column: str | None = None) -> tuple[list[Passage], tuple[str, ...]]:
    """Return the passages of texts, each as long as the model can read at most, and what was left out; see `index`."""
    notes, whole = [], list[Passage]()
    is_path = isinstance(data, str | Path)
    if column is not None or (is_table(data) if is_path else is_rows(data)):
        table = read_table(data, {"text": column})
        texts = table.texts(*table.chosen())
        whole = [Passage(text, row.file, row.line) for row, text in zip(table.rows, texts, strict=True)]
        notes += [f"{plural(texts.count(''), 'row')} without text left out"] if "" in texts else []
    elif not is_path:
        whole = [Passage(text, "", number) for number, text in enumerate(texts_of(data), start=1)]
    else:
        by_paragraph = Path(data).is_dir() or Path(data).suffix.lower() in MARKDOWN
        for file in text_files(data):
            text = read_file(file)
            cut = _paragraphs(text) if by_paragraph else enumerate(text.splitlines(), start=1)
            whole += [Passage(part, str(file), line) for line, part in cut]
    parts = [list(_fitting(one, model)) for one in whole if one.text.strip()]
    if not parts:
        raise DataError("there is no text to embed", hint="pass texts, or files with text in them")
    long = [len(each) for each in parts if len(each) > 1]
    if long:
        context = f"{model.config.context:,} tokens"
        notes += [f"{plural(len(long), 'text')} of more than {context} cut into {sum(long):,} passages"]
    return [part for each in parts for part in each], tuple(notes)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a text with the lines that they begin on; headings stay with what follows them."""
    begun, kept = 1, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            begun, kept = (begun, kept) if kept else (number, [])
            kept.append(line.rstrip())
        elif kept and not kept[-1].startswith("#"):
            yield begun, "\n".join(kept)
            kept = []
    if kept:
        yield begun, "\n".join(kept)


def _fitting(passage: Passage, model: TrainedModel) -> Iterator[Passage]:
    """Yield a passage, or its halves, and theirs, until the model can read each."""
    text, context = passage.text, model.config.context
    if len(text) <= CHARACTERS_PER_TOKEN * context and len(encode_texts(model, [text])[0]) <= context:
        yield passage
        return
    if len(text) < 2:
        raise DataError(f"the model reads {context} tokens, too few for {text!r}", hint="use another model")
    cut = _middle(text)
    after = text[cut:].lstrip()
    first = passage.line + text[: len(text) - len(after)].count("\n") if passage.file else passage.line
    yield from _fitting(passage._replace(text=text[:cut].rstrip() or text[:cut]), model)
    yield from _fitting(passage._replace(text=after, line=first), model) if after else ()


def _middle(text: str) -> int:
    """Return where to cut a text: near its middle, at the end of a sentence or line, or else at white space."""
    half, quarter = len(text) // 2, len(text) // 4
    for pattern in (_SENTENCE_END, _SPACE):
        cuts = [found.start() for found in pattern.finditer(text, quarter, len(text) - quarter)]
        if cuts:
            return min(cuts, key=lambda place: abs(place - half))
    return half
