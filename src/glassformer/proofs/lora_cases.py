"""The gradient of LoRA's adapters, proved through whole models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Tree
from ..training.lora import LoRA
from ..tree import tree_map
from .model_cases import ModelCase, model_cases


@dataclass(frozen=True, eq=False)
class LoRACase:
    """A model whose own parameters are frozen, and adapters far from their first values."""

    name: str
    lora: LoRA
    model: ModelCase
    point: Tree
    """The adapters: all that may move."""

    def function(self, point: Tree) -> Array:
        """Return the loss."""
        return self.model.function(self.lora.merge(self.model.params, point))

    def gradients(self) -> Tree:
        """Return the hand-derived gradient of `function`."""
        grads = self.model.gradients(self.lora.merge(self.model.params, self.point))
        return self.lora.backward(self.point, grads)


def lora_cases() -> list[LoRACase]:
    """Return adapters beside queries and values, and beside every matrix, of one model of each architecture."""
    adapters = {"queries and values": LoRA(rank=2, alpha=3.0), "all matrices": LoRA(rank=3, targets=("*.w", "*.table"))}
    models: dict[str, ModelCase] = {}
    for case in model_cases():
        models.setdefault(case.model.config.architecture, case)
    cases = []
    for model in models.values():
        for what, lora in adapters.items():
            rng = np.random.default_rng(0)
            drawn = lora.init(model.params, rng, np.float64)
            point = tree_map(lambda x, rng=rng: x + 0.3 * rng.standard_normal(x.shape), drawn)
            cases.append(LoRACase(f"LoRA, {model.name}, {what}", lora, model, point))
    return cases
