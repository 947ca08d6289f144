"""All errors that Glassformer raises on purpose, as one tree.

    GlassformerError
    ├── ConfigError      a setting is unknown, out of range or contradicts another   (also a ValueError)
    ├── ShapeError       arrays whose shapes do not fit each other                   (also a ValueError)
    ├── DTypeError       an array of the wrong dtype, or not an array at all         (also a TypeError)
    ├── TokenError       a token id or a target outside its vocabulary               (also an IndexError)
    ├── LengthError      a sequence that is empty or longer than the model reads     (also a ValueError)
    ├── ChatError        a chat template is damaged or refuses the conversation      (also a ValueError)
    ├── DataError        a file or a text that cannot serve as training data         (also a ValueError)
    ├── WeightsError     a file of published weights is damaged or not supported     (also a ValueError)
    ├── TrainingError    training cannot go on: its numbers are no longer finite     (also an ArithmeticError)
    ├── ClusterError     a worker of a run on many machines is missing or lost       (also a ConnectionError)
    └── CheckpointError  a run folder or checkpoint missing, damaged or not writable (also an OSError)

Each message states the fact with its values; `hint` says what to do about it.
"""

import os
from collections.abc import Iterable

__all__ = [
    "ChatError", "CheckpointError", "ClusterError", "ConfigError", "DTypeError", "DataError", "GlassformerError",
    "LengthError", "ShapeError", "TokenError", "TrainingError", "WeightsError", "did_you_mean", "first_line", "nearest",
    "some", "typed",
]  # fmt: skip


LONGEST = 100
"""Longer words are not compared: no known word has more letters."""
FEW = 12
"""At most this many names are listed in a hint."""


class GlassformerError(Exception):
    """Base of every error raised on purpose: a fact, and where possible a remedy."""

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(fact)
        self.fact = fact
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.fact}\n\nhint: {self.hint}" if self.hint else self.fact


class ConfigError(GlassformerError, ValueError):
    """A setting is unknown, out of range or contradicts another."""


class ShapeError(GlassformerError, ValueError):
    """Arrays whose shapes do not fit each other."""


class DTypeError(GlassformerError, TypeError):
    """An array of the wrong dtype, or something that is not an array."""


class TokenError(GlassformerError, IndexError):
    """A token id or a target outside its vocabulary."""


class LengthError(GlassformerError, ValueError):
    """A sequence that is empty or longer than the model reads."""


class ChatError(GlassformerError, ValueError):
    """A chat template that is damaged, does something forbidden, or refuses the conversation."""


class DataError(GlassformerError, ValueError):
    """A file or a text that cannot serve as training data: missing, empty, damaged or in another encoding."""


class WeightsError(GlassformerError, ValueError):
    """A file of published weights that is damaged, or holds what is not supported."""


class TrainingError(GlassformerError, ArithmeticError):
    """Training cannot go on: its numbers are no longer finite."""


class ClusterError(GlassformerError, ConnectionError):
    """A worker of a run on many machines that is missing, does not belong to it, or was lost."""


class CheckpointError(GlassformerError, OSError):
    """A run folder or checkpoint that is missing, damaged or cannot be written."""


def did_you_mean(word: str, known: Iterable[str], *, listed: str | None = None) -> str:
    """Return a hint that names the closest known words, or all of them when none is close.

    If there are many, it names the most similar ones, or repeats `listed`, which says where to find all.
    """
    known = sorted(known)
    close = nearest(word, known)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    if len(known) <= FEW:
        return "known: " + ", ".join(known)
    if listed is not None:
        return listed
    import difflib  # slow to import, and only a failure needs it

    alike = difflib.get_close_matches(word[:LONGEST], known, n=FEW, cutoff=0.0)
    return "known: " + ", ".join(alike) + f" and {len(known) - len(alike):,} more"


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` known words that were probably meant, or none.

    First those with the fewest typing errors, few for the length of the word; else those that begin alike or are made
    of the same words, such as bpe_size for size; else those that share a word.
    """
    if len(word) > LONGEST:
        return []  # comparing it would take long
    wanted = _plain(word)
    typos = {name: _typos(wanted, _plain(name)) for name in known}
    few = 1 if len(wanted) < 6 else 2 if len(wanted) < 9 else 3
    # Replacing a letter of a short word makes another word: gpu does not mean cpu.
    near = {
        name: number
        for name, number in typos.items()
        if number <= few and not (len(wanted) == len(_plain(name)) < 4 and sorted(wanted) != sorted(_plain(name)))
    }
    if near:
        return [name for name in near if near[name] == min(near.values())][:count]
    alike = [name for name in typos if _begin_alike(wanted, _plain(name)) or _share_words(wanted, _plain(name))]
    alike = alike or [name for name in typos if _words(wanted) & _words(_plain(name))]
    return sorted(alike, key=lambda name: (len(_words(wanted) ^ _words(_plain(name))), typos[name], name))[:count]


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_")


def _typos(a: str, b: str) -> int:
    """Return how many letters must be added, removed, replaced or swapped with a neighbor to turn a into b."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        last, row = row, [i]
        for j, y in enumerate(b, start=1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                row[j] = min(row[j], before[j - 2] + 1)
        before = last
    return row[-1]


def _begin_alike(a: str, b: str) -> bool:
    """Tell whether one word is a prefix of the other (act, activation), or nearly so (half, halves)."""
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    shorter, longer = sorted((len(a), len(b)))
    return same >= 3 and (same == shorter or (4 * same >= 3 * shorter and 2 * same >= longer))


def _share_words(a: str, b: str) -> bool:
    """Tell whether all words of one name are among those of the other."""
    small, large = sorted(({part for part in name.split("_") if part} for name in (a, b)), key=len)
    return bool(small) and small <= large and max(map(len, small)) > 1


def _words(name: str) -> set[str]:
    """Return the words of a name that have more than three letters."""
    return {part.removesuffix("s") for part in name.split("_") if len(part) > 3}


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def typed(word: object) -> str:
    """Return a word of a command with the quotes that this system's shell needs."""
    if os.name == "nt":
        import subprocess  # only a hint needs it

        return subprocess.list2cmdline([str(word)])
    import shlex

    return shlex.quote(str(word))


def some(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(name[:80] for name in names[:4])
    return shown + (f" and {len(names) - 4:,} more" if len(names) > 4 else "") if names else "nothing"
