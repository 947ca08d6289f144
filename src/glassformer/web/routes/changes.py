"""Changes: the tokens that can be put in, a second text to take values from, and the effect of all of them."""

from typing import Annotated, Any

import numpy as np

from ...interpret.run import has_no_head
from ...interpret.scene import fallen_most, moved
from ..explorer import OpenModel, RunSession
from ..router import route
from ..run_session import probabilities
from .runs import tokens_of

MOST_TOKENS = 50
"""Most tokens that a search returns."""
TOP = 8
"""How many of the likeliest tokens, before and after, the outcome lists."""


# --- tokens ----------------------------------------------------------------------------------------------------------


@route("vocabulary")
def vocabulary(opened: OpenModel, part: str = "tokens", text: Annotated[str, 200] = "") -> dict[str, Any]:
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
