"""What is optimized: all parameters of a model, or fewer numbers that determine them."""

from typing import Self

from ..arrays import Tree


class Parametrization:
    """A function from what is trained to the parameters of the model, and its gradient; here all of them are trained.

    params = effective(trained);  d trained = pull_back(trained, d params)

    What it takes besides is its `base`: arrays that stay as they are, or None. `over` puts others in their place, such
    as those that a traced program is given.
    """

    base: Tree

    def __init__(self) -> None:
        self.base = None

    def over(self, base: Tree) -> Self:
        """Return the same over other arrays."""
        return self

    def effective(self, trained: Tree) -> Tree:
        """Return the parameters of the model."""
        return trained

    def pull_back(self, trained: Tree, grads: Tree) -> Tree:
        """Return the gradients of what is trained for those of the parameters."""
        return grads


EVERYTHING = Parametrization()
