"""The requests that the page can make: a table from words to functions, filled by the files in `routes/`.

    @route("lens")
    def lens_of(explorer, question): …       # the question is a JSON object, the answer something JSON can hold

The page shows every `GlassformerError` as a sentence with its hint.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ConfigError, did_you_mean
from .explorer import Explorer, RunSession
from .state import read_state


class Download(NamedTuple):
    """An answer that the browser saves as a file."""

    name: str
    body: bytes


Answer = Callable[[Explorer, dict[str, Any]], Any]

ROUTES: dict[str, Answer] = {}
FOLDER = "glassformer.web.routes"


def route(word: str) -> Callable[[Answer], Answer]:
    """Register a function for the questions of one word."""

    def register(function: Answer) -> Answer:
        ROUTES[word] = function
        return function

    return register


def load_routes() -> None:
    """Import all routes, which fills the table."""
    for found in pkgutil.iter_modules(importlib.import_module(FOLDER).__path__):
        importlib.import_module(f"{FOLDER}.{found.name}")


def ask(explorer: Explorer, word: str, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a question."""
    if word not in ROUTES:
        raise ConfigError(f"there is no question {word[:40]!r}", hint=did_you_mean(word[:40], ROUTES))
    return ROUTES[word](explorer, question)


def session_of(explorer: Explorer, question: dict[str, Any]) -> RunSession:
    """Return the run that a question is about, by its `state`."""
    return explorer.session(read_state(question.get("state")))


def only(question: dict[str, Any], *known: str) -> None:
    """Refuse unknown parts of a question."""
    for name in question:
        if name not in known:
            raise ConfigError(f"the question has an unknown part {name[:40]!r}", hint=did_you_mean(name[:40], known))


def plain_json(found: Any) -> Any:
    """Return an answer in JSON's own types; NaN and infinities become None."""
    if isinstance(found, dict):
        return {str(name): plain_json(part) for name, part in found.items()}
    if isinstance(found, list | tuple):
        return [plain_json(part) for part in found]
    if hasattr(found, "tolist"):
        return plain_json(found.tolist())
    return None if isinstance(found, float) and not math.isfinite(found) else found
