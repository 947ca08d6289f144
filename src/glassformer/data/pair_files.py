"""Pairs of texts from files: tab-separated lines, and the catalogs (.po, .mo) that translated programs carry."""

import os
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from .catalogs import Message, read_mo, read_po
from .corpus import read_text, text_files

PAIR_SUFFIXES = frozenset({".tsv", ".po", ".mo"})


class Pair(NamedTuple):
    """A text and what it should become."""

    source: str
    target: str


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """Return the pairs of a .tsv, .po or .mo file, or of all such files below a folder, in order."""
    try:
        pairs = [pair for file in text_files(path, PAIR_SUFFIXES) for pair in _read(file)]
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}", hint="check its permissions") from error
    if not pairs:
        raise DataError(f"{path} holds no pair of texts", hint="an empty source or target does not count")
    return pairs


def _read(path: Path) -> list[Pair]:
    catalog = {".po": read_po, ".mo": read_mo}.get(path.suffix.lower())
    return _read_tsv(path) if catalog is None else _pairs(catalog(path))


def _read_tsv(path: Path) -> list[Pair]:
    """Read lines of source, tab, target; blank lines do not count."""
    pairs = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            raise DataError(
                f"{path}, line {number:,}: expected source, one tab, target; got {line!r:.80}",
                hint="each line needs exactly one tab with text on both sides",
            )
        pairs.append(Pair(*fields))
    return pairs


def _pairs(messages: list[Message]) -> list[Pair]:
    """Return the translated messages; a plural form pairs the singulars and the plurals of both languages."""
    pairs = []
    for sources, targets in messages:
        if len(sources) == 1:
            matched = [(sources[0], targets[0])]
        elif len(targets) == 1:  # a language without a singular of its own
            matched = [(sources[1], targets[0])]
        else:
            matched = [(sources[0], targets[0]), (sources[1], targets[-1])]
        pairs += [Pair(source, target) for source, target in matched if source and target]
    return pairs
