"""The card of a number: its formula with the numbers filled in, where it comes from, and its proof."""

from typing import Any

import numpy as np

from ...interpret.cards import Cards
from ...interpret.memory import check_proof
from ..derivations import page_of
from ..explorer import RunSession
from ..router import route

LATER = "the gradient of a long text takes a backward pass through all blocks: ask for it"


@route("card")
def card(
    session: RunSession, name: str, index: tuple[int, ...], gradient: bool = False, wait: bool = False
) -> dict[str, Any]:
    """Return the card of one entry of a value, a parameter, or, with `gradient`, of the gradient of either.

    The value comes first: the gradient of a large model takes a backward pass. `later` says how to get it:
    "soon", ask again with `wait`; "", it is on the card.
    `derivations` has for each op on it the name of the page that derives its gradient.
    """
    cards = cards_of(session, gradient=gradient or wait)
    found = cards.card(name, index, gradient=gradient)
    pages = {op: page_of(op) for op in (found.op, *(reader.op for reader in found.readers))}
    derivations = {op: page for op, page in pages.items() if page}
    return {**found.to_dict(), "later": "soon" if cards.why_not else "", "derivations": derivations}


@route("formulas")
def formulas(session: RunSession) -> dict[str, Any]:
    """Return the formulas of all values with their letters, for the cards of a file."""
    return session.once("formulas", lambda: cards_of(session, gradient=False).formulas())


@route("proof")
def proof(session: RunSession, name: str, index: tuple[int, ...]) -> dict[str, Any]:
    """Return the derivative for one entry, computed twice: by the backward pass and by a complex step."""
    check_proof(session.run.model.config, session.run.params, session.run.batch)
    found = cards_of(session, gradient=False).prove(name, index)
    return {**found._asdict(), "difference": found.difference}


def cards_of(session: RunSession, *, gradient: bool) -> Cards:
    """Return the cards of a run, with gradients if they are wanted, known already, or quickly computed."""
    if gradient or session.opened.dtype == np.float64 or "gradients" in session.kept:
        return session.once("cards", lambda: Cards(session.run, session.of, session.gradients))
    return session.once("cards of values", lambda: Cards(session.run, session.of, why_not=LATER))
