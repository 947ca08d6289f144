"""Path patching: what one part tells another directly, with everything else as it was.

    1. The sender says what it said in the source. All sublayers after it are frozen, but the one with the receiver:
       what reaches the receiver differs by what the sender wrote, and by nothing else.
    2. The receiver says what it said then, in a run that is otherwise as it was. The answer is measured.

    sender = at("blocks.0.attention.output.x", head=1)
    patch_path(run, source, sender, at("blocks.1.attention.attend.k", head=0), of)    to the keys of a head
    patch_path(run, source, sender, at("logits"), of)                                 to the logits, directly

Norms are no sublayers: they compute as ever (Wang et al. 2022).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ConfigError
from .changes import freeze, take
from .names import LOGITS, check_name
from .patching import Answer, answer, check_alike
from .run import Run
from .stream import sublayers
from .where import Part


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


def at(name: str, **where: Part) -> Place:
    """Say where a path begins or ends."""
    return Place(name, where)


def patch_path(run: Run, source: Run, sender: Place, receiver: Place, of: Answer) -> PathEffect:
    """Return what the sender, as it was in the source, does to the answer by way of the receiver alone."""
    check_alike(run, source)
    for place in (sender, receiver):
        check_name(place.name, run)
    if run.addresses[sender.name].number >= run.addresses[receiver.name].number:
        raise ConfigError(
            f"{sender.name} does not come before {receiver.name}", hint="a path leads from an earlier value to a later"
        )
    others = [
        one.name
        for one in sublayers(run)
        if run.addresses[one.name].number > run.addresses[sender.name].number
        and not any(_is_part(place.name, one.name) for place in (sender, receiver))
    ]
    told = run.changed(take(sender.name, source, **sender.where), *map(freeze, others))
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
