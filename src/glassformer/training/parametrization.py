"""What is optimized: all parameters of a model, or fewer numbers that determine them."""

from dataclasses import dataclass
from typing import Protocol, Self

from ..arrays import Tree


class Parametrization(Protocol):
    """A function from what is trained to the parameters of the model, and its gradient.

    params = effective(trained);  d trained = pull_back(trained, d params)

    What it takes besides is its `base`: arrays that stay as they are, or None. `over` puts others in their place, such
    as those that a traced program is given.
    """

    @property
    def base(self) -> Tree: ...

    def over(self, base: Tree) -> Self: ...

    def effective(self, trained: Tree) -> Tree: ...

    def pull_back(self, trained: Tree, grads: Tree) -> Tree: ...


@dataclass(frozen=True)
class Everything:
    """Everything is trained: the parameters are what is optimized."""

    base: None = None

    def over(self, base: Tree) -> Self:
        """Return the same: there is nothing besides."""
        return self

    def effective(self, trained: Tree) -> Tree:
        """Return the parameters of the model."""
        return trained

    def pull_back(self, trained: Tree, grads: Tree) -> Tree:
        """Return the gradients of what is trained for those of the parameters."""
        return grads


EVERYTHING = Everything()
