"""The step of an optimizer with the gradients of a run: the move of every parameter, and the loss afterwards."""

from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.quantized import unpacked
from ..core.show import Result
from ..core.tree import flatten, map_named
from ..training.optimizer import Optimizer
from .gradients import gradients
from .run import Run, watch


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
