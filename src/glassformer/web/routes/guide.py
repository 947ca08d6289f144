"""The guide: which tours this run allows, and one step of a tour with its question and its answer."""

import tomllib
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, LengthError
from ...core.settings import check_known
from ..explorer import Explorer
from ..router import route
from ..state import PageState
from ..tours import STEPS, lacks
from ..walk import Facts, Walk

LONGEST = 512
"""Most tokens of a run that tours walk over."""
TOLERANCE = 0.03
"""How far a number that was guessed may be off, relatively."""


@cache
def words() -> dict[str, Any]:
    """Return what tours say, by tours and steps."""
    return tomllib.loads((Path(__file__).parents[1] / "tours.toml").read_text(encoding="utf-8"))


@route("guide")
def guide(explorer: Explorer, state: PageState) -> list[dict[str, Any]]:
    """Return all tours, each with what this run lacks for it, empty for nothing."""
    walk = Walk(explorer, state)
    return [
        {"id": tour, "title": said["title"], "about": said["about"], "lacks": _lacks(walk, tour)}
        for tour, said in words().items()
    ]


@route("guide_step")
def guide_step(explorer: Explorer, state: PageState, tour: str, step: int) -> dict[str, Any]:
    """Return one step of a tour, from 0 on, and how many there are; the changes of the page are left out."""
    check_known("there is no tour", tour, STEPS)
    walk = Walk(explorer, state)
    if missing := _lacks(walk, tour):
        raise ConfigError(missing.rstrip("."))
    steps = {name: make for name, (make, has) in STEPS[tour].items() if has(walk)}
    if not 0 <= step < len(steps):
        raise LengthError(f"the tour has no step {step}", hint=f"it has {len(steps)}, from 0 to {len(steps) - 1}")
    name = [*steps][step]
    made = walk.once(f"{tour} {name}", lambda: _written(words()[tour][name], steps[name](walk)))
    return {"tour": words()[tour]["title"], "count": len(steps), **made}


def _written(said: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Return a step as the page shows it: its words, with the numbers of the run."""
    then = {"changes": (), "of": None, "card": None, "look": {}, **facts.get("then", {})}
    plain = {"changes": [asdict(one) for one in then["changes"]], "of": then["of"] and asdict(then["of"])}
    shown = {word: said[word].format(**facts) for word in ("title", "say", "ask", "why")}
    choices = said.get("choices", facts.get("choices", []))
    numbers = {"right": facts["right"], "tolerance": facts.get("tolerance", TOLERANCE)}
    own = {"point": facts["point"], "look": facts["look"], "math": facts.get("math", "")}
    return {**shown, "choices": choices, **numbers, **own, "then": {**then, **plain}}


def _lacks(walk: Walk, tour: str) -> str:
    count = max(len(walk.tokens), len(walk.source))
    if count > LONGEST:
        return f"Tours need a text of at most {LONGEST} tokens; this one has {count}."
    return lacks(walk, tour)
