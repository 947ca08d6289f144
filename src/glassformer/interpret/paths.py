"""Path patching: what one part tells another directly, with everything else as it was.

    1. The sender has its value of the source. The sublayers after it are held as they are in the run, except the one
       with the receiver: what reaches the receiver differs by what the sender wrote.
    2. The receiver has the value it got then, in a run that is otherwise as it was. The answer is measured.

    sender = at("blocks.0.attention.output.x", head=1)
    patch_path(run, source, sender, at("blocks.1.attention.attend.k", head=0), of)    to the keys of a head
    patch_path(run, source, sender, at("logits"), of)                                 to the logits, directly

Norms are not held: they compute as ever. By default all sublayers are held, so that the path is a direct one. Wang et
al. (2022) hold attention alone and let feed-forward layers compute: `hold="attention"`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import ConfigError
from ..settings import check_known
from .changes import freeze, take
from .names import LOGITS, check_name
from .patching import Answer, answer, check_alike
from .run import Run
from .stream import ATTENTIONS, KINDS, sublayers
from .where import Selection

HOLDS = {"sublayers": tuple(KINDS), "attention": ATTENTIONS}
"""Which sublayers are held as they are in the run."""


class Place(NamedTuple):
    """A value of a run, or some of its entries."""

    name: str
    where: dict[str, Any]


class PathEffect(NamedTuple):
    """What a path does to the answer of a run.

    effect        the change of the answer
    run, source   the answers of the two
    """

    effect: float
    run: float
    source: float


def at(name: str, **where: Selection) -> Place:
    """Say where a path begins or ends."""
    return Place(name, where)


def patch_path(
    run: Run, source: Run, sender: Place, receiver: Place, of: Answer, *, hold: str = "sublayers"
) -> PathEffect:
    """Return what the sender, as it was in the source, does to the answer by way of the receiver alone.

    hold   "sublayers": the path is direct; "attention": it may pass through feed-forward layers (Wang et al. 2022)
    """
    check_known("hold is", hold, HOLDS)
    check_alike(run, source)
    for place in (sender, receiver):
        check_name(place.name, run)
    if run.addresses[sender.name].number >= run.addresses[receiver.name].number:
        raise ConfigError(
            f"{sender.name} does not come before {receiver.name}", hint="a path leads from an earlier value to a later"
        )
    others = [
        one.name
        for one in sublayers(run, kinds=HOLDS[hold])
        if run.addresses[one.name].number > run.addresses[sender.name].number
        and not any(_is_part(place.name, one.name) for place in (sender, receiver))
    ]
    told = run.changed(
        take(sender.name, source, **sender.where), *(replace(freeze(name), value=run[name]) for name in others)
    )
    before, there = answer(of, run, run.logits), answer(of, source, source.logits)
    if receiver.name == LOGITS and not receiver.where:
        after = told
    elif np.array_equal(told[receiver.name], run[receiver.name]):
        after = run  # the sender does not reach it
    else:
        after = run.changed(take(receiver.name, told, **receiver.where))
    return PathEffect(answer(of, after, after.logits) - before, before, there)


def _is_part(name: str, sublayer: str) -> bool:
    return name == sublayer or name.startswith(f"{sublayer}.")
