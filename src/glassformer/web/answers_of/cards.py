"""The card of a number: its formula with the numbers filled in, where it comes from, and its proof."""

from __future__ import annotations

from typing import Any

from ...interpret.cards import Cards
from ...interpret.run import EVERYTHING
from ..answers import answers, only, seen_by
from ..explorer import Explorer, Seen
from ..room import check_free, proof_bytes, tidied
from ..state import read_index

LATER = "for so long a text, gradients are found when they are asked for: a pass back through all blocks"


@answers("card")
def card(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the card of one entry of a value, a parameter, or, with `gradient`, of the gradient of either.

    With `later`, its gradient was not looked for: a question with `gradient` does.
    """
    only(question, "state", "name", "index", "gradient")
    seen, gradient = seen_by(explorer, question), question.get("gradient") is True
    name, index = str(question.get("name")), read_index(question.get("index"))
    with tidied(seen.run):
        cards = cards_of(seen, gradient=gradient)
        return {**cards.card(name, index, gradient=gradient).to_dict(), "later": bool(cards.why_not)}


@answers("proof")
def proof(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the derivative of what runs back for one entry, found twice: backward, and by a complex step."""
    only(question, "state", "name", "index")
    seen = seen_by(explorer, question)
    check_free(proof_bytes(seen.run), "a proof, which computes in float64,")
    with tidied(seen.run):
        found = cards_of(seen, gradient=False).prove(str(question.get("name")), read_index(question.get("index")))
    return {**found._asdict(), "difference": found.difference}


def cards_of(seen: Seen, *, gradient: bool) -> Cards:
    """Return what answers for the cards of a run, with the gradients that are shown elsewhere, too.

    Those of a long text take long: for a value they are not looked for.
    """
    if gradient or seen.run.keeps == EVERYTHING or seen.has_gradients:
        return seen.once("cards", lambda: Cards(seen.run, seen.of, seen.gradients))
    return seen.once("cards of values", lambda: Cards(seen.run, seen.of, why_not=LATER))
