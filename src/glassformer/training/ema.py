"""An exponential moving average of the parameters: a smoother model than any single step."""

from dataclasses import dataclass

import numpy as np

from ..arrays import Tree, cast, namespace, widen
from ..tree import library, tree_map
from .optimizer import check_fractions
from .optimizers import started


@dataclass(frozen=True)
class EMA:
    """Average the parameters of all steps, each step weighing `decay` times as much as the next.

        average ← average + weight · (p − average)
        weight = (1 − decay) / (1 − decayᵗ)   corrected: the weights of t steps sum to one, the first average is p₁
        weight = 1 − decay                    otherwise: the parameters given to `init` stay in, decayᵗ of them

    The average is held in float32 for parameters of half precision. State: {"step": count, "average": tree}.
    """

    decay: float = 0.999
    corrected: bool = True

    def __post_init__(self) -> None:
        check_fractions(self, ["decay"])

    def init(self, params: Tree) -> dict[str, Tree]:
        """Return the state before the first step."""
        # In memory of its own: the parameters may be overwritten.
        average = tree_map(lambda p: namespace(p).array(widen(p), copy=True), params)
        return {"step": library(params).zeros((), dtype=np.int32), "average": average}

    def update(self, state: dict[str, Tree], params: Tree) -> dict[str, Tree]:
        """Return the state that takes one more step's parameters into account."""
        step = namespace(state["step"]).asarray(state["step"] + 1, dtype=np.int32)
        weight = (1 - self.decay) / started(self.decay, step) if self.corrected else 1 - self.decay
        average = tree_map(
            lambda mean, p: mean + namespace(mean).asarray(weight, dtype=mean.dtype) * (cast(p, mean.dtype) - mean),
            state["average"],
            params,
        )
        return {"step": step, "average": average}

    def read(self, state: dict[str, Tree], params: Tree) -> Tree:
        """Return the average in the types of `params`, ready for the model."""
        return tree_map(lambda mean, p: cast(mean, p.dtype), state["average"], params)
