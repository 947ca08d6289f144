"""What a page may ask: a table from words to functions, which the files in `answers_of` fill.

    @answers("lens")
    def lens_of(explorer, question): …       # the question as JSON gave it; the answer as JSON takes it

Everything that a function refuses by an error of Glassformer reaches the page as a sentence with its hint.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ConfigError, did_you_mean
from .explorer import Explorer, Seen
from .state import read_state


class Download(NamedTuple):
    """An answer that is a file to keep."""

    name: str
    body: bytes


Answer = Callable[[Explorer, dict[str, Any]], Any]

ANSWERS: dict[str, Answer] = {}
ROOM = "glassformer.web.answers_of"


def answers(word: str) -> Callable[[Answer], Answer]:
    """Let a function answer the questions of a word."""

    def register(function: Answer) -> Answer:
        ANSWERS[word] = function
        return function

    return register


def load_answers() -> None:
    """Import all that answers."""
    for found in pkgutil.iter_modules(importlib.import_module(ROOM).__path__):
        importlib.import_module(f"{ROOM}.{found.name}")


def ask(explorer: Explorer, word: str, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question."""
    if word not in ANSWERS:
        raise ConfigError(f"there is no question {word[:40]!r}", hint=did_you_mean(word[:40], ANSWERS))
    return ANSWERS[word](explorer, question)


def seen_by(explorer: Explorer, question: dict[str, Any]) -> Seen:
    """Return the run that a question is about, by its `state`."""
    return explorer.seen(read_state(question.get("state")))


def only(question: dict[str, Any], *known: str) -> None:
    """Refuse parts of a question that nobody would read."""
    for name in question:
        if name not in known:
            raise ConfigError(f"the question has an unknown part {name[:40]!r}", hint=did_you_mean(name[:40], known))


def plain_json(found: Any) -> Any:
    """Return an answer in JSON's own types; what is no number there becomes None."""
    if isinstance(found, dict):
        return {str(name): plain_json(part) for name, part in found.items()}
    if isinstance(found, list | tuple):
        return [plain_json(part) for part in found]
    if hasattr(found, "tolist"):
        return plain_json(found.tolist())
    return None if isinstance(found, float) and not math.isfinite(found) else found
