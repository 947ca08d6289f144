"""What the columns of a table mean: whether its first row names them, and which of them a task reads."""

import re
from collections.abc import Mapping, Sequence
from statistics import median

KNOWN: dict[str, tuple[str, ...]] = {
    "text": (
        "text", "review", "sentence", "content", "comment", "message", "body", "document", "tweet", "post", "utterance",
        "headline", "description", "title",
    ),
    "label": (
        "label", "labels", "class", "category", "sentiment", "stars", "rating", "intent", "topic", "tag", "polarity",
        "emotion", "target", "score", "y",
    ),
    "source": ("source", "src", "question", "prompt", "instruction", "input"),
    "target": ("target", "tgt", "answer", "completion", "response", "translation", "output"),
}  # fmt: skip
"""Usual names of columns by their role, the likeliest first."""
PAIRED = (
    ("source", "target"), ("src", "tgt"), ("question", "answer"), ("prompt", "completion"), ("prompt", "response"),
    ("instruction", "output"), ("instruction", "response"), ("input", "output"), ("input", "target"),
)  # fmt: skip
"""Names of sources and targets that belong together, before any of them is looked for by itself."""
MISSING = frozenset({
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
})  # fmt: skip
"""Cells of a table in text that hold nothing, as pandas reads them."""
_NUMBER = re.compile(r"[-+]?(\d[\d.,]*|\.\d+)([eE][-+]?\d+)?%?")
WITNESSES = 1000
"""Rows that a first row is compared with."""


def known_columns(columns: Sequence[str], roles: Sequence[str]) -> dict[str, str | None]:
    """Return the column with a usual name for each role, by all names together; None where there is none."""
    folded = {name.strip().casefold(): name for name in reversed(columns)}
    if {"source", "target"} <= set(roles):
        both = next((pair for pair in PAIRED if folded.keys() >= set(pair)), None)
        if both is not None:
            return {role: folded[name] for role, name in zip(("source", "target"), both, strict=True)}
    return {role: next((folded[name] for name in KNOWN[role] if name in folded), None) for role in roles}


def names_columns(first: Sequence[str], others: Sequence[Sequence[str]], asked: Mapping[str, str | None]) -> bool:
    """Return whether a first row names the columns of the others.

    asked   the columns that the user names, by their roles

    A column that the user names decides. Otherwise a usual name speaks for it, and so does each column whose first
    field differs from all below: no number above numbers, a word above labels that repeat, less than half as long as
    texts are. A number, or a field that occurs again, speaks against it.
    """
    names = [name.strip().casefold() for name in first]
    named = [name.strip().casefold() for name in asked.values() if name is not None]
    if named:
        return not set(names).isdisjoint(named) or not all(name.isdecimal() for name in named)
    usual = any(name in known for name in names for known in KNOWN.values())
    if len(set(names)) < len(names):
        return usual  # and then two columns of one name are refused
    rows = [row for row in others[:WITNESSES] if len(row) == len(first)]
    return 2 * usual + sum(_vote(name, [row[i].strip() for row in rows]) for i, name in enumerate(names)) > 0


def _vote(name: str, values: Sequence[str]) -> int:
    """Return 1 if a first field looks like the name of the values below it, -1 if like one of them, else 0."""
    values = [value for value in values if value not in MISSING]
    if not name or not values:
        return 0
    folded = [value.casefold() for value in values]
    if _is_number(name) or name in folded:
        return -1
    if sum(map(_is_number, values)) >= 0.9 * len(values) or len(set(folded)) <= len(folded) / 3:
        return 1
    lengths = [len(value) for value in values]
    return int(len(name) < min(lengths) and 2 * len(name) < median(lengths))


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
