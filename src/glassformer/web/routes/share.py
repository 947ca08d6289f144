"""Sharing: a run as one file that needs no server, and the numbers of a tensor."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ...errors import ConfigError
from ..explorer import Explorer
from ..jobs import Job
from ..page_export import export_page
from ..router import Download, only, route, session_of

KINDS = ("value", "gradient")
NOT_KEPT = frozenset({"models", "job", "stop", "train", "share", "npz"})
"""Words whose answers are about this moment, or are files themselves."""
MOST = 5000
"""Most questions of one file."""


@route("share")
def share(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Begin to write the run of a page as one file; the job's result has it as text.

    told    what the address of the page says
    asked   a list of {word, question, key, work}: what its views have asked
    whats   the kinds of numbers of which every tensor is kept
    views   the views that the file shows
    """
    only(question, "told", "asked", "whats", "views")
    told, asked, whats, views = (question.get(name) for name in ("told", "asked", "whats", "views"))
    names = ("model", "text", "answer", "changes", "of", "steps")
    if not isinstance(told, dict) or not all(name in told for name in names):
        raise ConfigError("a file needs the whole state", hint=f"give {', '.join(names)}")
    if not isinstance(whats, list) or not all(what in KINDS for what in whats):
        raise ConfigError(f"there is no such kind of number: {whats!r:.60}", hint=f"known: {', '.join(KINDS)}")
    if not isinstance(asked, list) or len(asked) > MOST:
        raise ConfigError("what was asked is no list", hint=f"give a list of at most {MOST:,} questions")
    if not isinstance(views, list) or not all(isinstance(view, str) for view in views):
        raise ConfigError("the views are no list of names", hint="save it from the page")
    for one in asked:
        _check(one)
    kept = [one for one in asked if one["word"] not in NOT_KEPT]
    job = explorer.jobs.start(lambda job: _written(explorer, job, told, kept, tuple(whats), tuple(views)))
    return job.to_dict()


def _check(one: Any) -> None:
    if not isinstance(one, dict) or not isinstance(one.get("word"), str) or not isinstance(one.get("question"), dict):
        raise ConfigError("a question of a file has a word and a question", hint="save it from the page")
    only(one, "word", "question", "key", "work")
    if not isinstance(one.get("key", ""), str):
        raise ConfigError("the key of a question is no text", hint="save it from the page")


def _written(
    explorer: Explorer, job: Job, told: dict[str, Any], asked: Any, whats: tuple[str, ...], views: tuple[str, ...]
) -> dict[str, Any]:
    page = export_page(explorer, told, asked, whats, job.show, views=views)
    return {"html": page, "bytes": len(page.encode())}


@route("npz")
def npz(explorer: Explorer, question: dict[str, Any]) -> Download:
    """Return a tensor with all its digits as a file of NumPy: its value, or its gradient."""
    only(question, "state", "what", "name")
    what, name = question.get("what", "value"), question.get("name")
    if not isinstance(what, str) or not isinstance(name, str):
        raise ConfigError("a tensor is asked for by what and name", hint="give two texts")
    array = session_of(explorer, question).array(what, name)
    file = io.BytesIO()
    named: dict[str, Any] = {name: np.asarray(array)}
    np.savez_compressed(file, **named)
    return Download(f"{what.replace(' ', '_')}.{name}.npz", file.getvalue())
