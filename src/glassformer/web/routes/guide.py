"""The guide: which tours this run allows, and one step of a tour with its question and its answer.

Tours are data, in tours.toml. A question names what it is about (`tour_facts.py`) and its kind: a function here.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import ConfigError, LengthError
from ...core.settings import check_known
from ...interpret.run import has_no_head
from ..explorer import Explorer
from ..router import route
from ..state import PageChange, PageState
from ..tour_facts import ABOUT, MEASURES, Facts, Options, head
from ..tour_run import TourRun, quoted, shown

LONGEST = 512
"""Most tokens of a run that tours walk over."""
COUNT = 4
"""Answers to choose from."""


@dataclass(frozen=True)
class Question:
    """The question of a step, as tours.toml has it.

    about      what gives the facts: a function of `ABOUT`
    kind       a function of `KINDS`
    of         the fact asked for; `right` instead is the same in every run
    measure    what is measured before and after `change`: a word, a value, where, and the end of the name of a value
    point      what the guide points at, and `look` what the scene shows: facts; `then` is shown with the answer
    formula    the end of the name of an entry whose formula is shown; with `card`, its card opens
    gradient   "loss" or "logit": the number whose gradients are shown with the answer
    needs      what a run must have for this step
    """

    about: str
    kind: str
    of: str = ""
    right: float | None = None
    tolerance: float = 0.03  # how far a guessed number may be off, relatively
    measure: str = ""
    within: float = 0.0
    change: dict[str, Any] = field(default_factory=dict)
    point: str = "point"
    look: str = "look"
    then: str = ""
    formula: str | None = None
    card: bool = False
    gradient: str = ""
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Answer:
    """The right answer: a number, or the index of a choice; `facts` fill the words beside those of the run."""

    right: float
    choices: Sequence[str] = ()
    facts: Facts = field(default_factory=dict)


@cache
def tours() -> dict[str, Any]:
    """Return the tours by name, and under `needs` how it is said that a run lacks something."""
    tours = tomllib.loads((Path(__file__).parents[1] / "tours.toml").read_text(encoding="utf-8"))
    for step in (step for tour in tours.values() for step in tour.values() if isinstance(step, dict)):
        step["question"] = Question(**step["question"])
    return tours


NEEDS: dict[str, Callable[[TourRun], Any]] = {
    "sums": lambda tour: tour.run.model.config.block != "no_residual",
    "attention": lambda tour: tour.run.model.config.block != "feed_forward_only",
    "norm": lambda tour: tour.norm,
    "source": lambda tour: len(tour.stacks) > 1,
    "blocks": lambda tour: [one.stack for one in tour.stacks] == ["decoder"] and len(tour.stacks[0].blocks) > 1,
    "repetition": lambda tour: tour.repetition is not None,
    "tokens": lambda tour: len(tour.tokens) > 2,
    "head": lambda tour: not has_no_head(tour.run.model),
    "targets": lambda tour: tour.run.batch.targets is not None,
    "pre norm": lambda tour: tour.run.model.config.norm_position == "pre",
    "several keys": lambda tour: len(head(tour)["allowed"]) > 1,
}
"""What a run must have for a tour or a step."""


def lacks(run: TourRun, tour: str) -> str:
    """Return what a run lacks for a tour, empty for nothing."""
    count = max(len(run.tokens), len(run.source))
    if count > LONGEST:
        return f"Tours need a text of at most {LONGEST} tokens; this one has {count}."
    missing = next((need for need in tours()[tour]["needs"] if not NEEDS[need](run)), None)
    return tours()["needs"][missing] if missing else ""


@route("guide")
def guide(explorer: Explorer, state: PageState) -> list[dict[str, Any]]:
    """Return all tours, each with what this run lacks for it, empty for nothing."""
    run = TourRun(explorer, state)
    return [
        {"id": name, "title": tour["title"], "about": tour["about"], "lacks": lacks(run, name)}
        for name, tour in tours().items()
        if name != "needs"
    ]


@route("guide_step")
def guide_step(explorer: Explorer, state: PageState, tour: str, step: int) -> dict[str, Any]:
    """Return one step of a tour, from 0 on, and how many there are; the changes of the page are left out."""
    check_known("there is no tour", tour, [name for name in tours() if name != "needs"])
    run, words = TourRun(explorer, state), tours()[tour]
    if missing := lacks(run, tour):
        raise ConfigError(missing.rstrip("."))
    steps = {name: one for name, one in words.items() if isinstance(one, dict)}
    names = [name for name, one in steps.items() if all(NEEDS[need](run) for need in one["question"].needs)]
    if not 0 <= step < len(names):
        raise LengthError(f"the tour has no step {step}", hint=f"it has {len(names)}, from 0 to {len(names) - 1}")
    made = run.once(f"{tour} {names[step]}", lambda: _filled(run, steps[names[step]]))
    return {"tour": words["title"], "count": len(names), **made}


def _filled(run: TourRun, step: dict[str, Any]) -> dict[str, Any]:
    """Return a step as the page shows it, with the numbers of the run."""
    asked: Question = step["question"]
    facts = ABOUT[asked.about](run)
    changes = _changes(asked, facts)
    if asked.measure:
        fact: Any = [MEASURES[asked.measure](one, facts) for one in (run.run, run.changed(changes))]
    else:
        fact = facts[asked.of] if asked.right is None else asked.right
    answer = KINDS[asked.kind](fact, asked)
    facts |= answer.facts
    filled = {name: shown(fact) for name, fact in facts.items()}
    of = getattr(run, asked.gradient) if asked.gradient else None
    entry = f"{facts['name']}{asked.formula}" if asked.formula is not None else ""
    card = {"name": entry, "index": facts["index"], **({"gradient": True} if of else {})} if asked.card else None
    look = {"shown": "gradients"} if of else facts[asked.then] if asked.then else {}
    return {
        **{word: step[word].format(**filled) for word in ("title", "say", "ask", "why")},
        "choices": step.get("choices", answer.choices), "right": answer.right, "tolerance": asked.tolerance,
        "point": facts.get(asked.point, asked.point), "look": facts[asked.look],
        "math": run.math(entry, facts["index"], of) if entry else "",
        "then": {"changes": [asdict(one) for one in changes], "of": of and asdict(of), "card": card, "look": look},
    }  # fmt: skip


def _changes(asked: Question, facts: Facts) -> list[PageChange]:
    """Return the changes of a question: of one value, or of each that a fact names."""
    if not asked.change:
        return []
    where = {axis: facts[fact] for axis, fact in asked.change.get("where", {}).items()}
    word, end, value = asked.change["word"], asked.change["name"], asked.change.get("value", 0.0)
    return [PageChange(word, f"{name}{end}", where, value) for name in facts.get("names", [facts["name"]])]


# --- the kinds of questions: of a fact, or of a measure before and after a change ------------------------------------


def number(fact: float, asked: Question) -> Answer:
    """Ask for a number."""
    return Answer(fact)


def choice(options: Options, asked: Question) -> Answer:
    """Ask for the right one among a few, in their order: its place gives no hint."""
    others = [int(key) for key in options.keys if key != options.right]
    few = others[:: max(1, len(others) // (COUNT - 1))][: COUNT - 1]
    keys = sorted([*few, int(options.right)])
    return Answer(keys.index(options.right), [options.label(key) for key in keys])


def largest(numbers: dict[str, float], asked: Question) -> Answer:
    """Ask which of some named numbers is the largest."""
    short = {name.rpartition(".")[2].replace("_", "-"): value for name, value in numbers.items()}
    right = int(np.argmax([*numbers.values()]))
    lines = ", ".join(f"{name} {shown(value)}" for name, value in sorted(short.items(), key=lambda one: -one[1]))
    return Answer(right, [*short], {"lines": lines, "best": [*numbers][right]})


def yes(fact: bool, asked: Question) -> Answer:
    """Ask whether something is so."""
    return Answer(int(not fact))


def moves(pair: Sequence[Any], asked: Question) -> Answer:
    """Ask whether any number of a measure moves."""
    most = float(np.max(np.abs(pair[1] - pair[0])))
    return Answer(int(most < asked.within), facts={"most": most})


def stays(pair: Sequence[Any], asked: Question) -> Answer:
    """Ask whether the prediction stays."""
    (was, label, p), (now, other, q) = pair
    return Answer(int(was != now), facts={"was": quoted(label), "p": p, "now": quoted(other), "q": q})


def grows(pair: Sequence[float], asked: Question) -> Answer:
    """Ask whether a measure grows, falls, or stays within a limit."""
    before, now = pair
    right = 2 if abs(now - before) < asked.within else int(now <= before)
    return Answer(right, facts={"before": before, "now": now})


def likelier(pair: Sequence[float], asked: Question) -> Answer:
    """Ask whether an answer becomes likelier, by its loss."""
    return Answer(int(pair[1] > pair[0]), facts={"before": pair[0], "now": pair[1]})


def ratio(pair: Sequence[float], asked: Question) -> Answer:
    """Ask whether a measure doubles, stays or halves."""
    right = int(np.argmin(np.abs(np.array([2.0, 1.0, 0.5]) - pair[1] / pair[0])))
    return Answer(right, facts={"before": pair[0], "now": pair[1]})


KINDS: dict[str, Callable[[Any, Question], Answer]] = {
    kind.__name__: kind for kind in (number, choice, largest, yes, moves, stays, grows, likelier, ratio)
}
