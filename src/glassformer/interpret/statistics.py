"""How large the vectors of a model are, layer by layer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import ShapeError
from .show import Table
from .trace import Trace


class LayerStatistics(NamedTuple):
    """The numbers that leave one layer, over all tokens and features.

    rms      √(mean x²)
    zeros    the share of entries that are exactly zero
    norm     the mean length of a token's vector
    change   ‖x − x before‖ / ‖x before‖, averaged over tokens: how much of the vector this block wrote; 0 for the first
    """

    name: str
    mean: float
    std: float
    rms: float
    minimum: float
    maximum: float
    zeros: float
    norm: float
    change: float


def layer_statistics(seen: Trace | Sequence[Trace], stack: str | None = None) -> list[LayerStatistics]:
    """Describe the embedding and the output of every block of one stack, over one example or several.

    `stack` is "encoder" or "decoder"; the last that the model has unless given.
    """
    traces = [seen] if isinstance(seen, Trace) else list(seen)
    name = list(traces[0].residual)[-1] if stack is None else stack
    return residual_statistics(np.concatenate([one.residual[name] for one in traces], axis=1))


def residual_statistics(residual: Array) -> list[LayerStatistics]:
    """Describe a residual stream (L + 1, T, D): the embedding, then the output of every block."""
    residual = np.asarray(residual, dtype=np.float64)
    if residual.ndim != 3 or residual.size == 0:
        raise ShapeError(
            f"the residual stream has shape {residual.shape}, expected (layers + 1, tokens, width)",
            hint="pass trace(...).residual",
        )
    return Table(_describe(number, residual) for number in range(len(residual)))


def _describe(number: int, residual: Array) -> LayerStatistics:
    x = residual[number]
    before = residual[max(number - 1, 0)]
    length = np.linalg.norm(before, axis=-1)
    moved = np.linalg.norm(x - before, axis=-1)
    return LayerStatistics(
        name="embedding" if number == 0 else f"block {number - 1}",
        mean=float(x.mean()),
        std=float(x.std()),
        rms=float(np.sqrt(np.mean(x**2))),
        minimum=float(x.min()),
        maximum=float(x.max()),
        zeros=float(np.mean(x == 0)),
        norm=float(np.linalg.norm(x, axis=-1).mean()),
        change=float(np.mean(np.divide(moved, length, out=np.zeros_like(moved), where=length > 0))),
    )
