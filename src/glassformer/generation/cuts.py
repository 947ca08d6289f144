"""What each setting of sampling does to the next token's distribution, one after the other, to be looked at.

    own            what the model itself says
    temperature    sharper or flatter; 0 leaves the likeliest token alone
    top_k, top_p, min_p     each leaves tokens out; what is left is made to sum to one

The last stage is the distribution that a token is drawn from. Every stage is `distribution` with the settings so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array
from .sampling import Sampling, distribution

STAGES = ("temperature", "top_k", "top_p", "min_p")
OWN = Sampling()


class Stage(NamedTuple):
    """The distribution (V,) after a setting, and which tokens that setting left out, (V,)."""

    name: str
    probabilities: Array
    cut: Array


def stages(logits: Array, sampling: Sampling) -> list[Stage]:
    """Return the model's own distribution for logits (V,), and what each setting makes of the one before it."""
    p = distribution(logits, None, OWN)
    found = [Stage("own", p, np.zeros(p.shape, dtype=bool))]
    settings: dict[str, float | int | None] = {}
    for name in STAGES:
        settings[name] = getattr(sampling, name)
        after = distribution(logits, None, Sampling.of(settings))
        found.append(Stage(name, after, (p > 0) & (after == 0)))
        p = after
    return found
