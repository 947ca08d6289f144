"""The card of a number: its formula with the numbers filled in, where it comes from, and its proof."""

from typing import Any

import numpy as np

from ...core.errors import ConfigError
from ...interpret.cards import Cards
from ...interpret.run import EVERYTHING
from ...interpret.templates import Templates
from ..derivations import page_of
from ..explorer import RunSession
from ..memory_budget import check_free, proof_bytes, tidied
from ..router import route

LATER = "the gradient of a long text takes a backward pass through all blocks: ask for it"


@route("card")
def card(
    session: RunSession, name: str, index: tuple[int, ...], gradient: bool = False, wait: bool = False
) -> dict[str, Any]:
    """Return the card of one entry of a value, a parameter, or, with `gradient`, of the gradient of either.

    The value comes first: the gradient of a large model takes a backward pass. `later` says how to get it:
    "soon", ask again with `wait`; "asked", the same, but only if the user wants it; "", it is on the card.
    `derivations` has for each op on it the name of the page that derives its gradient.
    """
    with tidied(session.run):
        cards = cards_of(session, gradient=gradient or wait)
        later = "" if not cards.why_not else "soon" if session.run.keeps == EVERYTHING else "asked"
        found = cards.card(name, index, gradient=gradient)
        pages = {op: page_of(op) for op in (found.op, *(reader.op for reader in found.readers))}
        return {**found.to_dict(), "later": later, "derivations": {op: page for op, page in pages.items() if page}}


@route("formulas")
def formulas(session: RunSession) -> dict[str, Any]:
    """Return the formulas of all values, with letters in the place of an index: a file fills in numbers it has."""
    if session.run.keeps != EVERYTHING:
        raise ConfigError("formulas of a text this long are not kept in a file", hint="take a shorter text")
    return session.once("formulas", lambda: Templates(cards_of(session, gradient=False)).to_dict())


@route("proof")
def proof(session: RunSession, name: str, index: tuple[int, ...]) -> dict[str, Any]:
    """Return the derivative for one entry, computed twice: by the backward pass and by a complex step."""
    check_free(proof_bytes(session.run), "a proof, which computes in float64,")
    with tidied(session.run):
        found = cards_of(session, gradient=False).prove(name, index)
    return {**found._asdict(), "difference": found.difference}


def cards_of(session: RunSession, *, gradient: bool) -> Cards:
    """Return the cards of a run, with gradients if they are wanted, known already, or quickly computed."""
    is_quick = session.run.keeps == EVERYTHING and session.opened.dtype == np.float64
    if gradient or is_quick or "gradients" in session.kept:
        return session.once("cards", lambda: Cards(session.run, session.of, session.gradients))
    return session.once("cards of values", lambda: Cards(session.run, session.of, why_not=LATER))
