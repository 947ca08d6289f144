"""Everything Glassformer refuses, as one tree of exceptions.

    GlassformerError
    ├── ConfigError      a setting is unknown, out of range or contradicts another   (also a ValueError)
    ├── ShapeError       arrays whose shapes do not fit each other                   (also a ValueError)
    ├── DTypeError       an array of the wrong kind, or not an array at all          (also a TypeError)
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

from collections.abc import Iterable

__all__ = [
    "ChatError", "CheckpointError", "ClusterError", "ConfigError", "DTypeError", "DataError", "GlassformerError",
    "LengthError", "ShapeError", "TokenError", "TrainingError", "WeightsError", "did_you_mean", "first_line", "some",
]  # fmt: skip


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
    """An array of the wrong kind, or something that is not an array."""


class TokenError(GlassformerError, IndexError):
    """A token id or a target outside its vocabulary."""


class LengthError(GlassformerError, ValueError):
    """A sequence that is empty or longer than the model reads."""


class ChatError(GlassformerError, ValueError):
    """A chat template that is damaged, does what it must not, or refuses the conversation."""


class DataError(GlassformerError, ValueError):
    """A file or a text that cannot serve as training data: missing, empty, damaged or in another encoding."""


class WeightsError(GlassformerError, ValueError):
    """A file of published weights that is damaged, or holds what is not supported."""


class TrainingError(GlassformerError, ArithmeticError):
    """Training cannot go on: its numbers are no longer finite."""


class ClusterError(GlassformerError, ConnectionError):
    """A worker of a run on many machines that does not come, does not belong, or was lost."""


class CheckpointError(GlassformerError, OSError):
    """A run folder or checkpoint that is missing, damaged or cannot be written."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known words, or all of them when none is close."""
    import difflib  # only a failure needs it, and importing it takes a while

    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    return "known: " + ", ".join(known)


def first_line(error: Exception) -> str:
    """Return what an error says, in short."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def some(names: list[str]) -> str:
    """Name the first of them, and how many more there are."""
    shown = ", ".join(name[:80] for name in names[:4])
    return shown + (f" and {len(names) - 4:,} more" if len(names) > 4 else "") if names else "nothing"
