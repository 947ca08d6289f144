"""The card of a number: its formula with the numbers filled in, where it comes from, and its proof."""

from __future__ import annotations

from typing import Any

from ...interpret.cards import Cards
from ...interpret.run import EVERYTHING
from ..explorer import Explorer, RunSession
from ..memory_budget import check_free, proof_bytes, tidied
from ..router import only, route, session_of
from ..state import read_index

LATER = "for so long a text, gradients are found when they are asked for: a pass back through all blocks"


@route("card")
def card(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the card of one entry of a value, a parameter, or, with `gradient`, of the gradient of either.

    With `later`, its gradient was not looked for: a question with `gradient` does.
    """
    only(question, "state", "name", "index", "gradient")
    session, gradient = session_of(explorer, question), question.get("gradient") is True
    name, index = str(question.get("name")), read_index(question.get("index"))
    with tidied(session.run):
        cards = cards_of(session, gradient=gradient)
        return {**cards.card(name, index, gradient=gradient).to_dict(), "later": bool(cards.why_not)}


@route("proof")
def proof(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the derivative of what runs back for one entry, found twice: backward, and by a complex step."""
    only(question, "state", "name", "index")
    session = session_of(explorer, question)
    check_free(proof_bytes(session.run), "a proof, which computes in float64,")
    with tidied(session.run):
        found = cards_of(session, gradient=False).prove(str(question.get("name")), read_index(question.get("index")))
    return {**found._asdict(), "difference": found.difference}


def cards_of(session: RunSession, *, gradient: bool) -> Cards:
    """Return what answers for the cards of a run, with the gradients that are shown elsewhere, too.

    Those of a long text take long: for a value they are not looked for.
    """
    if gradient or session.run.keeps == EVERYTHING or session.has_gradients:
        return session.once("cards", lambda: Cards(session.run, session.of, session.gradients))
    return session.once("cards of values", lambda: Cards(session.run, session.of, why_not=LATER))
