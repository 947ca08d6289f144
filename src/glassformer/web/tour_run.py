"""A run as tours read it: its scene, its tokens, gradients and formulas; and how words show a number or a token."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..interpret import Run
from ..interpret.cards import Cards
from ..interpret.run import has_no_head
from ..interpret.scene import StackScene, scene
from .explorer import Explorer, RunSession
from .run_session import probabilities
from .state import PageChange, PageState, PageTarget


class Probability(float):
    """A number that words show in percent."""


class TourRun:
    """A run without changes, and what tours read from it."""

    def __init__(self, explorer: Explorer, state: PageState) -> None:
        self.explorer = explorer
        self.state = replace(state, changes=(), steps=(), of=PageTarget())

    @cached_property
    def session(self) -> RunSession:
        """The run as it is, with what was computed about it."""
        return self.explorer.session(self.state)

    @property
    def run(self) -> Run:
        """The run itself."""
        return self.session.run

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something about the run that tours need, computed when first asked for."""
        return self.session.once(f"tours: {name}", make)

    def changed(self, changes: Sequence[PageChange]) -> Run:
        """Return the run with some changes."""
        return self.explorer.session(replace(self.state, changes=tuple(changes))).run

    def gradient(self, name: str, of: PageTarget) -> Array:
        """Return the gradient of a number for a value."""
        return self.explorer.session(replace(self.state, of=of)).array("gradient", name)

    @property
    def logit(self) -> PageTarget:
        """The likeliest logit, as the number whose gradient is shown; without a head, what there is."""
        if has_no_head(self.run.model):
            return PageTarget()
        return PageTarget("logit", int(np.argmax(probabilities(self.run))))

    @property
    def loss(self) -> PageTarget:
        """The loss where there is one, else the likeliest logit."""
        return PageTarget() if self.run.batch.targets is not None else self.logit

    def math(self, name: str, index: Sequence[int], of: PageTarget | None) -> str:
        """Return the formula of an entry of a value, or of its gradient of a number, typeset."""
        session = self.explorer.session(replace(self.state, of=of or PageTarget()))
        if of is None:
            cards = session.once("cards of tours", lambda: Cards(session.run, session.of, why_not="not asked for"))
        else:
            cards = session.once("cards", lambda: Cards(session.run, session.of, session.gradients))
        made = cards.card(name, tuple(index), gradient=of is not None).made
        return "" if made is None else made.mathml

    # --- the scene ---------------------------------------------------------------------------------------------------

    @cached_property
    def stacks(self) -> list[StackScene]:
        """The stacks of the scene; the last one answers."""
        return scene(self.run)

    @property
    def norm(self) -> str:
        """The norm behind all blocks, which alone reads its vector; empty where there is none."""
        return next((one.name for one in self.stacks[-1].end if one.kind == "norm"), "")

    def stations(self, layer: int, kind: str, part: str = "") -> list[str]:
        """Return the names of the values of a kind in a block of the last stack."""
        inside = self.stacks[-1].blocks[layer].stations
        return [one.name for one in inside if one.kind == kind and part in ("", one.part)]

    def open(self, layer: int = 0, head: int = 0, part: str = "attention", lane: int | None = None) -> dict[str, Any]:
        """Return what the scene shows with one block and one head of the last stack open, and one lane lit."""
        own = {"open": layer % len(self.stacks[-1].blocks), "head": head, "attention": part, "lane": lane}
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

    @property
    def repetition(self) -> tuple[int, int] | None:
        """The last position of the text, and an earlier one with the same token."""
        ids = np.asarray(self.run.batch.tokens)[0]
        same = np.flatnonzero(ids[:-2] == ids[-1])
        return (len(ids) - 1, int(same[-1])) if same.size else None


def prediction(run: Run) -> tuple[int, str, Probability]:
    """Return the likeliest token or class of a run: its id, its label, its probability."""
    p = probabilities(run)
    best = int(np.argmax(p))
    return best, run.label(best), Probability(p[best])


def shown(value: Any) -> str:
    """Write a fact as the page does: a number with three digits, a probability in percent, a word as it is."""
    if isinstance(value, Probability):
        p = 100 * value
        return f"{p:.0f} %" if p >= 99.95 or p == 0 else f"{p:.1f} %" if p >= 0.1 else "< 0.1 %"
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value) + 0.0
    text = f"{number:.3g}"
    plain = f"{float(text):.0f}" if "e+0" in text and abs(number) < 1e5 else text
    return plain.replace("e-0", "e-").replace("e+", "e").replace("-", "−")


def quoted(word: str, position: int | None = None) -> str:
    """Write a token, with its spaces in sight, and where it stands."""
    visible = word.replace("\n", "↵").replace("\t", "⇥") or "∅"
    visible = "␣" + visible[1:] if visible[0] == " " else visible
    visible = visible[:-1] + "␣" if visible[-1] == " " else visible
    return f"“{visible}”" if position is None else f"“{visible}” at position {position}"
