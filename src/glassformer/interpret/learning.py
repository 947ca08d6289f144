"""What a model would learn from a batch: the flow of gradients through its depth, and the step of an optimizer.

A residual connection hands its gradient on twice, along the stream as it is and through its sublayer:

    pre-norm    y = x + f(norm x)        dx = dy + (what f and its norm send back)
    post-norm   y = norm(s), s = x + f(x)    dx = ds + (what f sends back)

Without residual connections, the second path is all there is.

The first path changes nothing, the second is what the sublayer learns by: their norms tell which of them carries.

`update` takes the step of an optimizer without changing the model: how every parameter moves, and the loss afterwards.
"""

from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..core.quantized import unpacked
from ..core.show import Result, Table
from ..core.tree import flatten, map_named
from ..training.optimizer import Optimizer
from .gradients import Gradients, gradients
from .run import Run, watch
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


# --- the step of an optimizer -----------------------------------------------------------------------------------------


class Move(NamedTuple):
    """One parameter and where it would go.

    change     ‖new − old‖
    relative   ‖new − old‖ / ‖old‖
    downhill   the cosine between the move and the negative gradient: 1 for plain descent
    promised   the change of the loss to first order, Σ gradient · move
    """

    name: str
    size: float
    gradient: float
    change: float
    relative: float
    downhill: float
    promised: float


class Update(NamedTuple):
    """One step of an optimizer, computed without changing the model."""

    params: Tree
    state: Tree
    moves: list[Move]
    before: float  # the loss
    after: float

    @property
    def promised(self) -> float:
        """The change of the loss to first order, over all parameters."""
        return sum(move.promised for move in self.moves)

    def _repr_html_(self) -> str:
        return self.result()._repr_html_()

    def result(self) -> Result:
        """Return a row for each parameter, the one that promises most first."""
        rows = [list(move) for move in sorted(self.moves, key=lambda move: move.promised)]
        title = f"the loss goes from {self.before:.6g} to {self.after:.6g}; to first order it would fall by "
        columns = ("parameter", "size", "gradient", "moves by", "relative", "downhill", "promised")
        return Result(f"{title}{-self.promised:.4g}", columns, rows)


def update(run: Run, optimizer: Optimizer, *, lr: float | None = None, state: Tree | None = None) -> Update:
    """Take one step by the loss of a run; nothing is changed, and the new parameters and the new loss are returned."""
    found, before = gradients(run), unpacked(run.params)
    grads = map_named(lambda name, _: found.param(name), before)
    start: Any = optimizer.init(before) if state is None else state
    rate = optimizer.default_lr if lr is None else lr
    params, after = optimizer.update(before, grads, start, lr=rate)
    old, new, own = flatten(before), flatten(params), flatten(grads)
    moves = [_move(name, old[name], new[name], own[name]) for name in old]
    return Update(params, after, moves, run.loss, watch(run.model, params, run.batch).loss)


def _move(name: str, old: Array, new: Array, gradient: Array) -> Move:
    old, new, gradient = (np.asarray(x, dtype=np.float64) for x in (old, new, gradient))
    change = new - old
    size, length, slope = (float(np.linalg.norm(x)) for x in (old, change, gradient))
    along = float(np.sum(change * gradient))
    return Move(
        name, size, slope, length,
        relative=length / size if size else 0.0,
        downhill=-along / (length * slope) if length and slope else 0.0,
        promised=along,
    )  # fmt: skip
