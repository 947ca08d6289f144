"""The requests that the page can make: a table from words to functions, filled by the files in `routes/`.

    @route("lens")
    def lens_of(session: RunSession, first: int, token: str | None = None): …

The parameters of a function are the parts of a question, a JSON object; they are read as their annotations say. A
`RunSession` or a `PageState` comes from the part `state`, an `OpenModel` from the part `model`; any other dataclass
takes several parts. A function returns something JSON can hold, or long work: a function of a `Job`.
The page shows every `GlassformerError` as a sentence with its hint.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, NamedTuple, get_type_hints

from ..core.settings import check_known
from .explorer import Explorer, OpenModel, RunSession
from .state import PageState, read, read_state


class Download(NamedTuple):
    """An answer that the browser saves as a file."""

    name: str
    body: bytes


ROUTES: dict[str, Callable[[Explorer, dict[str, Any]], Any]] = {}
FOLDER = "glassformer.web.routes"
PATIENCE = 0.5
"""Seconds that an answer waits for the end of a job, so that a page need not ask often."""
OPENS: dict[Any, tuple[tuple[str, ...], Callable[[Explorer, dict[str, Any]], Any]]] = {
    Explorer: ((), lambda explorer, question: explorer),
    RunSession: (("state",), lambda explorer, question: explorer.session(read_state(question.get("state")))),
    PageState: (("state",), lambda explorer, question: read_state(question.get("state"))),
    OpenModel: (("model",), lambda explorer, question: explorer.opened(str(question.get("model")))),
}
"""What parameters of these types are: the part of a question, and how it is opened."""


def route(word: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for the questions of one word."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        names, arguments = _reader(function)

        def answer(explorer: Explorer, question: dict[str, Any]) -> Any:
            for name in question:
                check_known("the question has an unknown part", name, names)
            found = function(**arguments(explorer, question))
            return explorer.jobs.start(found).to_dict() if callable(found) else found

        ROUTES[word] = answer
        return function

    return register


def _reader(function: Callable[..., Any]) -> tuple[list[str], Callable[[Explorer, dict[str, Any]], dict[str, Any]]]:
    """Return the parts of a question that a function takes, and what reads its arguments from them."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    grouped = [name for name in parameters if is_dataclass(hints[name]) and hints[name] not in OPENS]
    groups = {name: _reader(hints[name]) for name in grouped}
    names: list[str] = []
    for name in parameters:
        names += OPENS[hints[name]][0] if hints[name] in OPENS else groups[name][0] if name in groups else [name]

    def arguments(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, parameter in parameters.items():
            if hints[name] in OPENS:
                found[name] = OPENS[hints[name]][1](explorer, question)
            elif name in groups:
                found[name] = hints[name](**groups[name][1](explorer, question))
            elif name in question or parameter.default is parameter.empty:
                found[name] = read(hints[name], question.get(name), name)
        return found

    return names, arguments


@route("job")
def job(explorer: Explorer, job: Any) -> dict[str, Any]:
    """Return the progress of a job, and its result at the end."""
    found = explorer.jobs.get(job)
    found.ended.wait(PATIENCE)
    return found.to_dict()


@route("stop")
def stop(explorer: Explorer, job: Any) -> dict[str, Any]:
    """Ask a job to stop between two of its parts."""
    found = explorer.jobs.get(job)
    found.asked_to_stop.set()
    return found.to_dict()


def load_routes() -> None:
    """Import all routes, which fills the table."""
    for found in pkgutil.iter_modules(importlib.import_module(FOLDER).__path__):
        importlib.import_module(f"{FOLDER}.{found.name}")


def ask(explorer: Explorer, word: str, question: dict[str, Any]) -> Any:
    """Return the answer to a question."""
    check_known("there is no question", word, ROUTES)
    return ROUTES[word](explorer, question)
