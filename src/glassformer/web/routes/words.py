"""The words that decided the class of a text."""

from dataclasses import asdict
from typing import Any

from ...core.errors import ConfigError
from ...interpret import explain
from ..explorer import RunSession
from ..jobs import Job, Work
from ..router import route


@route("words")
def words(session: RunSession) -> Work:
    """Begin to leave out each word of the text, and to integrate gradients: see `interpret.words`."""
    if session.state.changes or session.state.steps:
        raise ConfigError("words are explained for the model as it is", hint="take the changes and steps back")

    def work(job: Job) -> dict[str, Any]:
        found = explain(session.opened.model, session.state.text, progress=job.show)
        return {**asdict(found), "words": [word._asdict() for word in found.words], "missing": found.missing}

    return work
