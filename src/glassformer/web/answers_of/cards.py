"""The card of a number: its formula with the numbers filled in, where it comes from, and its proof."""

from __future__ import annotations

from typing import Any

from ...interpret.cards import Cards
from ..answers import answers, only, seen_by
from ..explorer import Explorer, Seen
from ..room import check_free, proof_bytes
from ..state import read_index


@answers("card")
def card(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the card of one entry of a value, a parameter, or, with `gradient`, of the gradient of either."""
    only(question, "state", "name", "index", "gradient")
    seen = seen_by(explorer, question)
    name, index = str(question.get("name")), read_index(question.get("index"))
    return cards_of(seen).card(name, index, gradient=question.get("gradient") is True).to_dict()


@answers("proof")
def proof(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the derivative of what runs back for one entry, found twice: backward, and by a complex step."""
    only(question, "state", "name", "index")
    seen = seen_by(explorer, question)
    check_free(proof_bytes(seen.run), "a proof, which computes in float64,")
    found = cards_of(seen).prove(str(question.get("name")), read_index(question.get("index")))
    return {**found._asdict(), "difference": found.difference}


def cards_of(seen: Seen) -> Cards:
    """Return what answers for the cards of a run, with the gradients that are shown elsewhere, too."""
    return seen.once("cards", lambda: Cards(seen.run, seen.of, seen.gradients))
