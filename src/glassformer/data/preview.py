"""What was understood of a file, in lines to read before the first step: rows, lengths, what is left out, examples."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..text.tokenizer import Tokenizer

WIDTH = 60
"""Characters of a text that an example shows."""
SHOWN = 12
"""Labels that are counted by name."""
_PLURAL = re.compile(r"^(\w+ )?(row|text|pair|line|source|file)s\b")


def left_out(reasons: Mapping[str, int]) -> tuple[str, ...]:
    """Return how many were left out for each reason, in one line; none if nothing was."""
    one = {reason: _PLURAL.sub(r"\1\2", reason) for reason in reasons}  # 1 row, 2 rows
    parts = [f"{count:,} {one[reason] if count == 1 else reason}" for reason, count in reasons.items() if count]
    return (f"left out: {'; '.join(parts)}",) if parts else ()


def label_counts(labels: Counter[str]) -> str:
    """Return how many texts each label has, the most frequent first."""
    ordered = labels.most_common()
    shown = ", ".join(f"{short(label, 30)} ({count:,})" for label, count in ordered[:SHOWN])
    return f"labels: {shown}" + (f" and {len(ordered) - SHOWN:,} others" if len(ordered) > SHOWN else "")


def token_lengths(what: str, lengths: Sequence[int], note: str = "") -> str:
    """Return the median and the most tokens of texts."""
    return f"{what}: median {int(np.median(lengths)):,} tokens, longest {max(lengths):,}{note}"


def tokenizer_line(tokenizer: Tokenizer, *, own: bool = True) -> str:
    """Say what texts are cut into; `own`: it was made for this data."""
    return f"tokenizer: {tokenizer.kind}, {tokenizer.size:,} tokens" + ("" if own else ", of the model")


def split_line(parts: Sequence[Sequence[object]]) -> str:
    """Return how many examples each of the parts has: to train on, to validate, to test."""
    train, validation, held_out = map(len, parts)
    between = f"{validation:,} to choose the best parameters by, " if validation else ""
    return f"split: {train:,} to train on, {between}{held_out:,} held out"


def examples(pairs: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return a line for each example: a text, or a text and what belongs to it."""
    return tuple("  " + " → ".join(f"“{short(part)}”" for part in pair) for pair in pairs)


def short(text: str, width: int = WIDTH) -> str:
    """Return a text on one line, and no more of it than fits."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
