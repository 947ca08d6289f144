"""How gradients flow through the depth of a model, and what of them takes which path.

A residual connection hands its gradient on twice, along the stream as it is and through its sublayer:

    pre-norm    y = x + f(norm x)        dx = dy + (what f and its norm send back)
    post-norm   y = norm(s), s = x + f(x)    dx = ds + (what f sends back)

The first path changes nothing, the second is what the sublayer learns by: their norms tell which of them carries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import ConfigError
from .gradients import Gradients
from .show import Table


class Flow(NamedTuple):
    """The gradient at one residual connection.

    name        of the sublayer
    arriving    ‖·‖ of the gradient of the stream behind it; with post-norm, of the sum before its norm
    leaving     ‖·‖ of the gradient of the stream before it
    through     ‖·‖ of the part that came through the sublayer; the rest, `arriving`, came along the stream
    share       through² / (through² + arriving²)
    cosine      between the two parts
    """

    name: str
    arriving: float
    leaving: float
    through: float
    share: float
    cosine: float


def gradient_flow(found: Gradients) -> list[Flow]:
    """Return the flow at every residual connection, from the first block to the last."""
    run = found.run
    post = run.model.config.norm_position == "post"
    names = [name.removesuffix("_norm") for name in run if name.endswith("_norm") and f"{name[:-5]}" in run]
    names = sorted((name for name in names if "blocks." in name), key=lambda name: run.addresses[name].number)
    if not names:
        raise ConfigError("this model has no residual connections that are known by name")
    return Table(_flow(found, name, post) for name in names)


def _flow(found: Gradients, name: str, post: bool) -> Flow:
    """Return the flow at one residual connection."""
    if post:
        behind, before = found[f"{name}_norm.x"], _read_by(found, name)
    else:
        behind, before = _behind(found, name), found[f"{name}_norm.x"]
    through = before - behind
    norms = [float(np.linalg.norm(x)) for x in (behind, before, through)]
    arriving, leaving, passed = norms
    scale = arriving * passed
    return Flow(
        name, arriving, leaving, passed,
        share=passed**2 / (passed**2 + arriving**2) if passed or arriving else 0.0,
        cosine=float(np.sum(behind * through)) / scale if scale else 0.0,
    )  # fmt: skip


def _behind(found: Gradients, name: str) -> Array:
    """Return the gradient of the stream behind a pre-norm residual connection, where the next norm may read it."""
    block, _, part = name.rpartition(".")
    parts = [own for own in ("attention", "cross_attention", "feed_forward") if f"{block}.{own}_norm" in found.run]
    following = parts[parts.index(part) + 1 :]
    return found[f"{block}.{following[0]}_norm.x" if following else f"{block}.output"]


def _read_by(found: Gradients, name: str) -> Array:
    """Return the gradient of the stream that a sublayer without a norm before it reads."""
    return found[f"{name}.query.x" if name.endswith("attention") else f"{name}.up.x"]
