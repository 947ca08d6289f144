"""Changes: their effect, and everything that can be switched off or replaced."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from ...interpret import Run
from ...interpret.run import has_no_head
from ...interpret.scene import fallen_most, moved
from ...interpret.stream import sublayers
from ..explorer import Opened, RunSession
from ..router import route
from ..run_session import probabilities
from ..state import POSITIONS
from .runs import tokens_of

MOST_TOKENS = 50
"""Most tokens that a search returns."""
TOP = 8
"""How many of the likeliest tokens, before and after, the outcome lists."""
EMBEDDINGS = {"source_embedding": "source", "embedding": "tokens"}
"""Where the stream begins, by the part of the batch that is read there."""


# --- tokens ----------------------------------------------------------------------------------------------------------


@route("vocabulary")
def vocabulary(opened: Opened, part: str = "tokens", text: Annotated[str, 200] = "") -> dict[str, Any]:
    """Return tokens whose text has a text in it: equal ones first, then those that begin with it.

    part    tokens, source or classes
    text    what to look for; #12 is the token of that number
    """
    words = opened.words(part)
    found = _matching(words, text)
    shown = [{"id": number, "label": words[number]} for number in found[:MOST_TOKENS]]
    return {"tokens": shown, "found": len(found), "size": len(words)}


def _matching(words: list[str], text: str) -> list[int]:
    """Return the ids of words that contain a text, the closest first."""
    if text.startswith("#") and text[1:].isascii() and text[1:].isdigit():
        return [int(text[1:])] if int(text[1:]) < len(words) else []
    wanted = text.casefold()
    found = [number for number, word in enumerate(words) if wanted in word.casefold()]

    def order(number: int) -> tuple[bool, bool, bool, int, int]:
        word = words[number]
        plain = word.strip().casefold()
        return word != text, plain != wanted.strip(), not plain.startswith(wanted.strip()), len(word), number

    return sorted(found, key=order)


@route("second")
def second(session: RunSession, other: str = "") -> dict[str, Any]:
    """Return how the model reads a second text, and whether values can be taken from it at equal places."""
    run = session.plain_session.other(other)
    parts = {part: tokens_of(run, part) for part in ("tokens", "source")}
    fits = all(np.shape(getattr(session.run.batch, part)) == np.shape(getattr(run.batch, part)) for part in parts)
    return {**parts, "fits": fits}


# --- before and after ------------------------------------------------------------------------------------------------


@route("outcome")
def outcome(session: RunSession, position: int | None = None) -> dict[str, Any]:
    """Return how likely tokens, or classes, are at a position before and after the changes.

    Without a position, it is the last one; of an answer, the one where the likeliest token lost most. A model without
    a head has no rows. `moved` is ‖after − before‖ / ‖before‖ of what the model returns.
    """
    plain, run = session.plain, session.run
    found: dict[str, Any] = {"rows": [], "position": None, "moved": moved(plain, run)}
    if has_no_head(run.model):
        return found
    at = fallen_most(plain, run) if position is None and run.batch.source is not None else position
    at = -1 if at is None else at
    before, after = (probabilities(one, at) for one in (plain, run))
    chosen = dict.fromkeys(int(n) for p in (after, before) for n in np.argsort(-p, kind="stable")[:TOP])
    rows = [{"id": n, "label": run.label(n), "before": float(before[n]), "after": float(after[n])} for n in chosen]
    return {**found, "rows": rows, "position": at}


# --- switches --------------------------------------------------------------------------------------------------------


@route("switches")
def switches(session: RunSession) -> dict[str, Any]:
    """Return what can be switched off: a row for each layer, its parts with the changes that silence them.

    A norm that is off takes away no mean and divides by nothing: y = gamma · x + beta.
    """
    run = session.plain
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for one in sublayers(run):
        block = rows.setdefault((one.stack, one.layer), {"stack": one.stack, "layer": one.layer, "parts": []})
        mixed = f"{one.name}.output.x"
        heads = [[_change("zero", mixed, head=head)] for head in range(run.heads)] if mixed in run else []
        norm, off = _norm_off(run, f"{one.name}_norm"), [_change("zero", one.name)]
        block["parts"].append({"kind": one.kind, "off": off, "norm": norm, "heads": heads})
    return {"rows": list(rows.values()), "heads": run.heads, "rest": _rest(run), "tokens": _places(run)}


def _norm_off(run: Run, name: str) -> list[dict[str, Any]] | None:
    """Return the changes that make a norm pass its input on, but for gamma and beta; None without a norm."""
    statistics = {"mean": 0.0, "rstd": 1.0, "rrms": 1.0}
    found = [_change("put", f"{name}.{word}", value) for word, value in statistics.items() if f"{name}.{word}" in run]
    return found or None


def _rest(run: Run) -> list[dict[str, Any]]:
    """Return the switches of what stands outside of the blocks."""
    norms = [*(f"{name}.norm" for name in EMBEDDINGS), *(name for name in run if name.endswith("final_norm"))]
    switched = {name: _norm_off(run, name) for name in norms}
    found = [{"title": name.replace(".", " ").replace("_", " "), "off": off} for name, off in switched.items() if off]
    if run.model.config.positions != "none":
        found.append({"title": f"{run.model.config.positions} positions", "off": [_change("zero", POSITIONS)]})
    return found


def _places(run: Run) -> list[dict[str, Any]]:
    """Return a switch for each token: its vector says nothing."""
    found = []
    for name, part in EMBEDDINGS.items():
        read = tokens_of(run, part)
        if name in run and read is not None and run[name].shape[1] == len(read):
            each = [{"label": one["label"], "off": [_change("zero", name, position=n)]} for n, one in enumerate(read)]
            found.append({"part": part, "tokens": each})
    return found


def _change(word: str, name: str, value: float = 0, **where: int) -> dict[str, Any]:
    return {"word": word, "name": name, "where": where, "value": value, "other": ""}
