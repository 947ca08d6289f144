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
    "some", "typed", "wrong_field",
]  # fmt: skip
__dir__ = __all__.copy


LONGEST = 100
"""Longer words are not compared: no known word has more letters."""
DEBUG = "GLASSFORMER_DEBUG"
"""The environment variable that keeps tracebacks whole."""
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


def nearest(word: object, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` known words that were probably meant: typed alike, else with the same beginning or word."""
    import difflib  # slow to import, and only a failure needs it

    if not isinstance(word, str) or len(word) > LONGEST:
        return []  # comparing it would take long
    wanted, plain = _plain(word), {_plain(name): name for name in known}
    # Half of a short word makes another word: gpu does not mean cpu, but bep means bpe.
    close = difflib.get_close_matches(wanted, plain, n=count, cutoff=0.74)
    close = close or [name for name in plain if sorted(name) == sorted(wanted)]
    parts = {part for part in wanted.split("_") if len(part) > 2}
    alike = [name for name in plain if parts & {*name.split("_")} or (parts and name.startswith(wanted[:3]))]
    return [plain[name] for name in (close or alike)[:count]]


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def wrong_field(error: Exception) -> str:
    """Return what is wrong with the content of a file, by the error that reading it led to."""
    if isinstance(error, KeyError):
        return f"it has no {str(error.args[0])[:60]!r}" if error.args else "a field is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "a field is of another kind than it should be" if type(error) in _OF_PYTHON else first_line(error)


_OF_PYTHON = (TypeError, ValueError, AttributeError, IndexError, OverflowError)
"""Errors whose messages speak of Python, not of the file."""


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
