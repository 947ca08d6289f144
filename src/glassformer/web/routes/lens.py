"""The logit lens: predictions from every point of the residual stream, and the parts of a logit."""

from typing import Annotated, Any

import numpy as np

from ...core.errors import ConfigError, LengthError
from ...interpret import Lens, Logit, attribute, lens
from ...interpret.lens import chosen_points
from ...interpret.reading import logit_of
from ...interpret.run import has_no_head
from ..explorer import RunSession
from ..jobs import Job, Work
from ..router import route

TOP = 5
Token = Annotated[str | None, 200]  # the text of a token, or # and its id
WIDEST = 64
"""Most positions of one question."""
AT_ONCE = 128
"""Vectors that the head reads between two checks for a request to stop."""


@route("lens")
def lens_of(
    session: RunSession, first: int | None = None, count: int = 8, token: Token = None, between: bool = False
) -> Work:
    """Begin to read the stream at some positions, the last one first.

    first, count    positions; a classifier has none, and is read as a whole
    token           one whose probability and rank are wanted everywhere, by its text or as #id; None: no one
    between         whether to read between the sublayers of a block, too
    """
    _check_head(session)
    run, model = session.run, session.opened.model
    number = None if token is None else run.token_id(token)
    names = [p.name for p in chosen_points(run, None) if between or " " not in p.label.removeprefix("block ")]
    parts: list[Any] = [None]
    if not model.is_classifier:
        places = _places(first, count, run.logits.shape[1])
        step = max(1, AT_ONCE // len(names))
        parts = [places[max(0, end - step) : end] for end in range(len(places), 0, -step)]
    return lambda job: _read(job, session, names, number, parts)


@route("attribution")
def attribution(session: RunSession, token: Token = None, against: Token = None, position: int = -1) -> Work:
    """Begin to take a logit apart; the likeliest one unless a token is named, or how far it is above another."""
    _check_head(session)
    target = logit_of(session.run, token, against, position)
    target.value(session.run)  # what does not exist is refused at once
    return lambda job: _parts(job, session, target)


def _read(job: Job, session: RunSession, names: list[str], token: int | None, parts: list[Any]) -> dict[str, Any]:
    """Read the points at all positions, part by part."""
    columns: list[dict[str, Any]] = []
    labels: dict[int, str] = {}
    shown: dict[str, Any] = {
        "points": [point._asdict() for point in chosen_points(session.run, names)],
        "token": None if token is None else {"id": token, "label": session.run.label(token)},
    }
    for number, part in enumerate(parts):
        job.show(number, len(parts), "reading the stream", {**shown, "columns": columns, "labels": labels})
        found = lens(session.run, at=names, positions=part)
        columns = [*_columns(found, token, part), *columns]
        ids = {n for column in columns for cell in column["cells"] for n in cell["ids"]}
        labels = {n: session.run.label(n) for n in ids}
    return {**shown, "columns": columns, "labels": labels}


def _columns(found: Lens, token: int | None, places: list[int] | None) -> list[dict[str, Any]]:
    """Return for each position what stands at every point: the likeliest tokens, and how the chosen one stands."""
    logits = found.logits
    ids, odds = found.top(min(TOP, logits.shape[-1]))
    chance = rank = None
    if token is not None:
        chance, rank = (_by_position(values) for values in (found.probabilities(token), found.ranks(token)))
    ids, odds = (_by_position(values, last=1) for values in (ids, odds))  # (N, T, count)
    return [
        {
            "position": None if places is None else places[n],
            "cells": [
                {"ids": ids[point, n].tolist(), "p": odds[point, n].tolist(),
                 "chance": None if chance is None else float(chance[point, n]),
                 "rank": None if rank is None else int(rank[point, n]) + 1}
                for point in range(len(found.points))
            ],
        }
        for n in range(ids.shape[1])
    ]  # fmt: skip


def _by_position(values: Any, last: int = 0) -> Any:
    """Return (N, T, …) of the first example; a classifier has one place."""
    first = np.asarray(values)[:, 0]
    return first if first.ndim == 2 + last else first[:, None]


def _parts(job: Job, session: RunSession, target: Logit) -> dict[str, Any]:
    job.show(0, 1, "running the logit back along the direct path")
    found = attribute(session.run, target).result()
    position = None
    if not session.opened.model.is_classifier:
        position = target.place(session.run, target.token)[1] % session.run.logits.shape[1]
    named = {"token": target.token, "against": target.against}
    return {
        **{word: None if n is None else {"id": n, "label": session.run.label(n)} for word, n in named.items()},
        "position": position,
        "value": found.facts["logit"],
        "sum": sum(part["value"] for part in found.records),
        "parts": found.records,
        "by_kind": found.facts["by_kind"],
    }


def _check_head(session: RunSession) -> None:
    """Refuse a model that says nothing."""
    if has_no_head(session.run.model):
        title = session.opened.model.title
        fact = f"{title} has no head to read the stream with: it makes vectors, not predictions"
        raise ConfigError(fact, hint="open a decoder, an encoder-decoder or a classifier")


def _places(first: int | None, count: int, size: int) -> list[int]:
    if not 1 <= count <= WIDEST:
        raise ConfigError(f"{count} positions at once", hint=f"ask for 1 to {WIDEST}")
    first = max(0, size - count) if first is None else first
    if not 0 <= first < size:
        raise LengthError(f"there is no position {first}", hint=f"there are {size}, from 0 to {size - 1}")
    return list(range(first, min(size, first + count)))
