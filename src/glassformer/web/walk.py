"""The facts that tours read from a run: words, single numbers, formulas, and runs with a change."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..interpret import Run
from ..interpret.cards import Cards
from ..interpret.run import has_no_head
from ..interpret.scene import StackScene, scene
from .explorer import Explorer, RunSession
from .run_session import probabilities
from .state import Asked, Changed, PageState

Facts = dict[str, Any]
COUNT = 4
"""Answers to choose from."""


class Walk:
    """A run without changes, and how tours read it."""

    def __init__(self, explorer: Explorer, state: PageState) -> None:
        self.explorer = explorer
        self.state = replace(state, changes=(), steps=(), of=Asked())

    @cached_property
    def session(self) -> RunSession:
        """The run as it is."""
        return self.explorer.session(self.state)

    @property
    def run(self) -> Run:
        """The run itself."""
        return self.session.run

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something about the run that tours need, found when first asked for."""
        return self.session.once(f"tours: {name}", make)

    def changed(self, changes: Sequence[Changed]) -> RunSession:
        """Return the run with some changes."""
        return self.explorer.session(replace(self.state, changes=tuple(changes)))

    def gradient(self, name: str, of: Asked) -> Array:
        """Return the gradient of a number for a value."""
        return self.explorer.session(replace(self.state, of=of)).array("gradient", name)

    @property
    def of(self) -> Asked:
        """The number whose gradient is shown: the likeliest logit, or what there is."""
        if has_no_head(self.run.model):
            return Asked()
        return Asked("logit", int(np.argmax(probabilities(self.run))))

    @property
    def loss(self) -> Asked:
        """The loss where there is one, else the likeliest logit."""
        return Asked() if self.run.batch.targets is not None else self.of

    def math(self, name: str, index: Sequence[int], *, gradient: Asked | None = None) -> str:
        """Return the formula of an entry of a value, or of its gradient, typeset."""
        of = Asked() if gradient is None else gradient
        session = self.explorer.session(replace(self.state, of=of))
        cards = session.once("cards of tours", lambda: Cards(session.run, session.of, why_not="not asked for"))
        if gradient is not None:
            cards = session.once("cards", lambda: Cards(session.run, session.of, session.gradients))
        made = cards.card(name, tuple(index), gradient=gradient is not None).made
        return "" if made is None else made.mathml

    # --- the scene ---------------------------------------------------------------------------------------------------

    @cached_property
    def stacks(self) -> list[StackScene]:
        """The stacks of the scene; the last one answers."""
        return scene(self.run)

    def stations(self, layer: int, kind: str, part: str = "") -> list[str]:
        """Return the names of the values of a kind in a block of the last stack."""
        inside = self.stacks[-1].blocks[layer].stations
        return [one.name for one in inside if one.kind == kind and part in ("", one.part)]

    def open(self, layer: int = 0, head: int = 0, part: str = "attention", lane: int | None = None) -> dict[str, Any]:
        """Return what the scene shows with one block and one head of the last stack open, and one lane lit."""
        own = {"open": layer, "head": head, "attention": part, "lane": lane}
        return {self.stacks[-1].stack: own, "shown": "values", "zoom": None}

    # --- words -------------------------------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens of the last stack."""
        return self._labels(self.stacks[-1].tokens)

    @cached_property
    def source(self) -> list[str]:
        """The tokens of the first stack."""
        return self._labels(self.stacks[0].tokens)

    def _labels(self, part: str) -> list[str]:
        labels = self.run.labels
        call = labels.source if part == "source" and labels.source is not None else labels.tokens
        return [call(int(number)) for number in np.asarray(getattr(self.run.batch, part))[0]]

    def likeliest(self, run: Run | None = None) -> tuple[int, str, float]:
        """Return the likeliest token or class: its id, its label, its probability."""
        p = probabilities(self.run if run is None else run)
        best = int(np.argmax(p))
        return best, self.run.label(best), float(p[best])


class Head(NamedTuple):
    """A head, the query that a tour looks at, its weights and scores, and the keys that it may see."""

    name: str
    layer: int
    head: int
    query: int
    weights: Array
    scores: Array
    allowed: Array

    @property
    def best(self) -> int:
        """The key with the largest weight."""
        return int(np.argmax(self.weights))


def head_of(walk: Walk, layer: int, part: str = "attention", query: int = -1, head: int | None = None) -> Head:
    """Return a head of a layer; unless one is named, one whose query is neither sure nor torn."""
    name = walk.stations(layer, "weights", part)[0].removesuffix(".attend.weights")
    weights = walk.run[f"{name}.attend.weights"][0]
    query %= weights.shape[1]
    if head is None:
        head = int(np.argmin(np.abs(weights[:, query].max(axis=-1) - 0.6)))
    allowed = np.flatnonzero(np.broadcast_to(walk.run[f"{name}.attend.mask"], (1, *weights.shape))[0, head, query])
    scores = walk.run[f"{name}.attend.scores"][0, head, query]
    return Head(name, layer, head, query, weights[head, query], scores, allowed)


def among(right: int, all_: Sequence[int], name: Callable[[int], str]) -> dict[str, Any]:
    """Return the right one among a few as choices, in their order: its place gives no hint."""
    others = [int(one) for one in all_ if one != right]
    few = others[:: max(1, len(others) // (COUNT - 1))][: COUNT - 1]
    chosen = sorted([*few, right])
    return {"right": chosen.index(right), "choices": [name(one) for one in chosen]}


def number(value: float) -> str:
    """Write a number with three digits, as the page does."""
    text = f"{float(value) + 0.0:.3g}"
    plain = f"{float(text):.0f}" if "e+0" in text and abs(value) < 1e5 else text
    return plain.replace("e-0", "e-").replace("e+", "e").replace("-", "−")


def percent(p: float) -> str:
    """Write a probability as the page does."""
    number = 100 * float(p)
    return f"{number:.0f} %" if number >= 99.95 or number == 0 else f"{number:.1f} %" if number >= 0.1 else "< 0.1 %"


def quoted(word: str, position: int | None = None) -> str:
    """Write a token, with its spaces in sight, and where it stands."""
    visible = word.replace("\n", "↵").replace("\t", "⇥") or "∅"
    visible = "␣" + visible[1:] if visible[0] == " " else visible
    visible = visible[:-1] + "␣" if visible[-1] == " " else visible
    return f"“{visible}”" if position is None else f"“{visible}” at position {position}"


def on(walk: Walk, head: Head, part: str = "attention") -> Facts:
    """Return what is said of a head, and where it stands."""
    words = walk.source if part == "cross_attention" else walk.tokens
    words = ["[CLS]"] * (len(head.weights) - len(words)) + words  # a learned vector may stand before the tokens
    return {
        "layer": head.layer, "head": head.head, "weight": number(head.weights[head.best]),
        "token": quoted(walk.tokens[head.query % len(walk.tokens)]), "best": quoted(words[head.best], head.best),
        "point": f"{head.name}.attend.weights", "look": walk.open(head.layer, head.head, part, head.query),
        **among(head.best, head.allowed, lambda key: quoted(words[key], key)),
    }  # fmt: skip


def first_head(walk: Walk) -> Head:
    """Return the head of block 0 that tours look at."""
    return walk.once("head", lambda: head_of(walk, 0))


def last_head(walk: Walk) -> Head:
    """Return the head of the last block that tours look at."""
    return walk.once("last head", lambda: head_of(walk, len(walk.stacks[-1].blocks) - 1))


def best_of(walk: Walk) -> Facts:
    """Return the likeliest answer in words."""
    _, label, p = walk.likeliest()
    return {"best": quoted(label), "p": percent(p)}


def lines(parts: dict[str, float]) -> str:
    """Write named numbers, the largest first."""
    return ", ".join(f"{name} {number(value)}" for name, value in sorted(parts.items(), key=lambda one: -one[1]))
