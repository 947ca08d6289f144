"""Gradients in float16 are enlarged on their way back, so that small ones do not vanish, and the scale finds itself."""

from dataclasses import dataclass

import numpy as np

from ...arrays import Array, Tree, namespace
from ...tree import tree_map


@dataclass(frozen=True)
class LossScaling:
    """Dynamic loss scaling (Micikevicius et al. 2018).

    The scale halves whenever a gradient leaves the range of float16, in which case the step is refused, and doubles
    after `patience` steps without that. State: {"scale": factor, "good": steps since the last change}.
    """

    first: float = 2.0**15
    largest: float = 2.0**24
    patience: int = 2000

    def init(self) -> dict[str, Array]:
        """Return the state before the first step."""
        return {"scale": np.asarray(self.first, np.float32), "good": np.asarray(0, np.int32)}

    def undo(self, grads: Tree, state: Tree) -> Tree:
        """Return gradients in their true size."""
        return tree_map(lambda g: g / state["scale"].astype(g.dtype), grads)

    def update(self, state: Tree, moved: Array) -> dict[str, Array]:
        """Return the state after a step that was taken or refused."""
        xp = namespace(state["scale"])
        good = state["good"] + 1
        grows = moved & (good >= self.patience)
        factor = xp.where(moved, xp.where(grows, 2.0, 1.0), 0.5).astype(np.float32)
        scale = xp.clip(state["scale"] * factor, 1.0, self.largest)
        return {"scale": scale, "good": xp.where(moved & ~grows, good, 0).astype(np.int32)}

    def can_shrink(self, state: Tree) -> bool:
        """Tell whether the scale after a refused step is still above one: the next step may go well."""
        return float(state["scale"]) > 1
