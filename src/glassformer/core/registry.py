"""Registered parts, by name: what a config may choose beside what is built in.

    register("activation", "square", (square, square_backward))

The functions to call are `register_op`, `register_activation`, `register_norm`, `register_positions`,
`register_block`, `register_tokenizer`, `register_optimizer`, `register_schedule`, `register_loss` and `task` of the
package, which check what they are given and put it here.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ConfigError, GlassformerError, did_you_mean

SUMMARIES = {
    "majority": "the most frequent of 8 tokens from {0, 1, 2}; ties go to the smallest",
    "counting": "count from 1 to 6: one sequence, learned by heart",
    "copy": "repeat a string of letters",
    "reverse": "write a string of letters backward",
    "sort": "sort 6 digits from {0, 1, 2}",
    "addition": "add two numbers of two digits, or of more",
    "multiplication": "multiply two numbers of two digits",
    "modular": "add modulo 97, from half of the table: the setup of grokking",
    "induction": "continue a random sequence that repeats itself",
    "parity": "tell whether the number of ones is even or odd, in steps",
    "brackets": "tell whether brackets of several kinds match",
    "regression": "find a line from its points, and continue it: in-context learning",
    "dates": "dates written in many languages to ISO dates, such as 3. März 2001 to 2001-03-03",
    "text": "continue a text: Python's own documentation, or your file, folder or token file",
    "lines": "write lines like those of a file, such as names",
    "pairs": "source to target, from a table (CSV, TSV, JSONL) or gettext catalogs (.po, .mo)",
    "classify": "tell texts apart by their labels, from a table (CSV, TSV, JSONL) or a folder for each label",
}
"""Each task in one line."""

BUILT_IN: dict[str, tuple[str, ...]] = {
    "activation": ("relu", "gelu", "gelu_tanh", "silu"),
    "norm": ("layer", "rms", "none"),
    "positions": ("learned", "sinusoidal", "rotary", "alibi", "relative", "none"),
    "block": ("residual", "parallel", "attention_only", "feed_forward_only", "no_residual"),
    "op": (),
    "tokenizer": ("chars", "bytes", "words", "bpe", "wordpiece", "tokenizer.json"),
    "task": tuple(SUMMARIES),
    "optimizer": ("sgd", "adam", "adamw", "lion", "muon"),
    "schedule": ("constant", "cosine", "linear", "inverse_sqrt"),
    "loss": ("cross_entropy",),
}
"""What may be chosen without registering it."""

PARTS = {"activation": "forward, backward", "norm": "make", "positions": "make", "block": "block"}
"""What the config of a model chooses by name, and users may register; and what is registered under the name."""
OF_RECIPE = {"optimizer": "cls", "schedule": "function", "loss": "forward, backward"}
"""The same for a recipe."""

_own: dict[str, dict[str, Any]] = {family: {} for family in BUILT_IN}
_origins: dict[tuple[str, str], Path] = {}  # the file that a part came from, where one was read
_changes = 0  # how often a part was registered
_reading: list[tuple[Path, list[tuple[str, str, Any]]]] = []


def register(family: str, name: Any, part: Any) -> None:
    """Make a part known under a name; the same name again replaces a registered part, never a built-in one."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"the name of a part is {name!r}", hint="use letters, digits and _, such as square_relu")
    if name in BUILT_IN[family]:
        raise ConfigError(f"{name!r} is the name of a built-in {family}", hint="choose another name")
    global _changes
    _changes += 1
    _own[family][name] = part
    _origins.pop((family, name), None)
    for path, parts in _reading:
        _origins[family, name] = path
        parts.append((family, name, part))


@contextlib.contextmanager
def reading(path: Path) -> Iterator[list[tuple[str, str, Any]]]:
    """Note that what is registered from here on comes from this file; yield it as (family, name, part)."""
    parts: list[tuple[str, str, Any]] = []
    _reading.append((path, parts))
    try:
        yield parts
    finally:
        _reading.pop()


def origin(family: str, name: str) -> Path | None:
    """Return the file that a part came from; None where it is built in, or was registered by a program."""
    return _origins.get((family, name)) if name in _own[family] else None


def known(family: str) -> tuple[str, ...]:
    """Return the names that a config may choose."""
    return (*BUILT_IN[family], *_own[family])


def own(family: str) -> dict[str, Any]:
    """Return the parts that were registered, by name."""
    return dict(_own[family])


def version() -> int:
    """Return a number that changes whenever a part is registered."""
    return _changes


def find(family: str, name: str) -> Any:
    """Return a registered part."""
    if name not in _own[family]:
        raise ConfigError(f"there is no {family} {name!r}", hint=did_you_mean(name, known(family)))
    return _own[family][name]


def check_stored(settings: Any, path: Path, kind: type[GlassformerError], *tokenizers: Any) -> None:
    """Refuse a stored model or recipe with a part that was registered where it was made, but is not here."""
    parts = PARTS | OF_RECIPE
    chosen = [(part, settings.get(part)) for part in parts] if isinstance(settings, dict) else []
    chosen += [("tokenizer", stored.get("kind")) for stored in tokenizers if isinstance(stored, dict)]
    for family, name in chosen:
        if isinstance(name, str) and name.isidentifier() and name not in (*known(family), "file"):
            how = f'("{name}", {parts[family]})' if family in parts else "(cls)"
            in_a_file = "commands know it if it is in a file and the run was trained with --task FILE"
            raise kind(
                f"{path} has the {family} {name!r}, which is not built in: Python code registered it, but not here",
                hint=f"first run that code again: gf.register_{family}{how}; {in_a_file}",
            )
