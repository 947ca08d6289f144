"""Random examples: a maker asks for arrays by the names of their axes, and gets any shape, small or large."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..core.arrays import Array
from .trees import cast_floats

SQUARES = 4
Maker = Callable[["Draw"], Any]


class Draw:
    """Draw the arguments of one call.

        def example(draw):
            return draw.array("B", "T", "C"), draw.ids("V", "B", "T")

    An axis that is named twice has the same size both times. `sizes` tells afterwards which sizes were drawn.
    """

    def __init__(self, rng: np.random.Generator, sizes: Mapping[str, int] | None = None, *, is_whole: bool = False):
        self.rng = rng
        self.sizes: dict[str, int] = {}
        self.lowest: dict[str, int] = {}
        self._wanted = dict(sizes or {})
        self._is_whole = is_whole

    def size(self, name: str, low: int = 1, high: int = 5) -> int:
        """Return the size of an axis: drawn from low to high, and from then on the same."""
        if name not in self.sizes:
            wanted = self._wanted.get(name)
            self.lowest[name] = low
            self.sizes[name] = int(self.rng.integers(low, high + 1)) if wanted is None else max(wanted, low)
        return self.sizes[name]

    def shape(self, *axes: str | int) -> tuple[int, ...]:
        """Return the sizes of several axes; a number stands for itself."""
        return tuple(axis if isinstance(axis, int) else self.size(axis) for axis in axes)

    def array(self, *axes: str | int, scale: float = 1.0) -> Array:
        """Return normal numbers; in the search for a small example, small whole ones."""
        shape = self.shape(*axes)
        if self._is_whole:
            return self.rng.integers(-2, 3, size=shape).astype(np.float64)
        return self.rng.standard_normal(shape) * scale

    def ids(self, below: str | int, *axes: str | int) -> Array:
        """Return whole numbers from 0 to the size of an axis, exclusive."""
        return self.rng.integers(0, self.shape(below)[0], size=self.shape(*axes))

    def booleans(self, *axes: str | int, chance: float = 0.7) -> Array:
        """Return a mask whose entries are True with this chance."""
        return self.rng.random(self.shape(*axes)) < chance


class Example:
    """The arguments of one call, and the sizes of the axes that they were drawn with."""

    def __init__(self, maker: Maker, draw: Draw, dtype: Any = np.float64):
        made = maker(draw)
        self.args: tuple[Any, ...] = cast_floats(made if isinstance(made, tuple) else (made,), dtype)
        self.sizes = draw.sizes
        self.lowest = draw.lowest
        self.dtype = np.dtype(dtype)
        self.scales: dict[str, float] = {}
        """The largest number that each result is computed from, once it is known."""


def examples(maker: Maker, count: int, *, seed: int = 0, dtype: Any = np.float64) -> list[Example]:
    """Return examples of random shapes; the first ones have every axis at 3, then 2, then different sizes."""
    made = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        known = Example(maker, Draw(rng)).sizes
        # Distinct sizes tell axes apart; equal ones let a transposed matrix through, which only its numbers show.
        sizes = {0: dict.fromkeys(known, 3), 1: {name: 2 + at for at, name in enumerate(known)}}.get(number)
        made.append(Example(maker, Draw(np.random.default_rng([seed, number]), sizes), dtype))
    return made


def square_examples(maker: Maker) -> list[Example]:
    """Return examples whose axes all have the same size, on which a transposed matrix still fits."""
    known = Example(maker, Draw(np.random.default_rng(0))).sizes
    rngs = [np.random.default_rng([7, number]) for number in range(SQUARES)]
    return [Example(maker, Draw(rng, dict.fromkeys(known, 2 + at % 3))) for at, rng in enumerate(rngs)]


def small_examples(maker: Maker, *, most: int = 60) -> Iterator[Example]:
    """Yield examples of small whole numbers, the smallest shapes first."""
    lowest = Example(maker, Draw(np.random.default_rng(0))).lowest
    steps = itertools.islice(itertools.product(range(3), repeat=len(lowest)), 3**6)
    shapes = [{name: low + more for (name, low), more in zip(lowest.items(), step, strict=True)} for step in steps]
    shapes.sort(key=lambda sizes: (math.prod(sizes.values()), sum(sizes.values())))
    for sizes in shapes[: most // 2]:
        for seed in range(2):
            yield Example(maker, Draw(np.random.default_rng([9, seed]), sizes, is_whole=True))
