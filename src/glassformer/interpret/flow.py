"""The flow of gradients through the depth of a model, and the share of each path.

A residual connection hands its gradient on twice, along the stream as it is and through its sublayer:

    pre-norm    y = x + f(norm x)        dx = dy + (what f and its norm send back)
    post-norm   y = norm(s), s = x + f(x)    dx = ds + (what f sends back)

Without residual connections, the second path is all there is.

The first path changes nothing, the second is what the sublayer learns by: their norms tell which of them carries.
"""

from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from ..core.errors import ConfigError
from ..core.show import Table
from .gradients import Gradients, gradients
from .run import Run
from .stream import KINDS, sublayers


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


def gradient_flow(found: Gradients | Run) -> list[Flow]:
    """Return the flow at every residual connection, from the first block to the last; of a run, that of its loss."""
    found = gradients(found) if isinstance(found, Run) else found
    run = found.run
    parts = [one for one in sublayers(run) if f"{one.name}_norm" in run]
    if not parts:
        raise ConfigError("this model has no residual connections that are known by name")
    flows = []
    for one, after in zip_longest(parts, parts[1:]):
        if run.model.config.norm_position == "post":
            behind, before = f"{one.name}_norm.x", f"{one.name}.{KINDS[one.kind]}.x"
        else:  # the next norm of the block reads the stream behind
            block, before = one.name.rpartition(".")[0], f"{one.name}_norm.x"
            inside = after is not None and after.name.startswith(f"{block}.")
            behind = f"{after.name}_norm.x" if inside else f"{block}.output"
        along = found[behind] * (run.model.config.block != "no_residual")
        through = found[before] - along
        norms = (float(np.linalg.norm(x)) for x in (found[behind], found[before], through, along))
        arriving, leaving, passed, direct = norms
        share = passed**2 / (passed**2 + direct**2) if passed or direct else 0.0
        scale = direct * passed
        cosine = float(np.sum(along * through)) / scale if scale else 0.0
        flows.append(Flow(one.name, arriving, leaving, passed, share, cosine))
    return Table(flows)
