"""What is optimized: all of a model's parameters, or fewer numbers from which they follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..arrays import Tree


class Parametrization(Protocol):
    """A function from what is trained to the parameters of the model, and its gradient.

    params = effective(trained);  d trained = pull_back(trained, d params)
    """

    def effective(self, trained: Tree) -> Tree: ...

    def pull_back(self, trained: Tree, grads: Tree) -> Tree: ...


@dataclass(frozen=True)
class Whole:
    """Everything is trained: the parameters are what is optimized."""

    def effective(self, trained: Tree) -> Tree:
        """Return the parameters of the model."""
        return trained

    def pull_back(self, trained: Tree, grads: Tree) -> Tree:
        """Return the gradients of what is trained for those of the parameters."""
        return grads


WHOLE = Whole()
