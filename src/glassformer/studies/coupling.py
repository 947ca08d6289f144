"""Position coupling: tokens that belong together stand at the same place (Cho et al. 2024, McLeish et al. 2024).

    tokens   @3  5  2  +  4  7  =  9  9        25 + 74 = 99, the last digits first
    places   3   4  5  3  4  5  3  4  5        @3 says that counting starts at 3; each sign starts it again

Digits of equal worth share a vector, so that the next digit of a sum depends on those one place up, however long the
numbers are. Sequences to train on start anywhere, so that every vector is learned.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..config import TransformerConfig
from ..core import registry
from ..core.arrays import Array, namespace
from ..core.dispatch import recorded
from ..data.examples import Examples, decoder_examples
from ..layers import Positions, register_positions

SYMBOLS, PLUS, EQUALS, START = 10, 10, 11, 12  # ids 0 … 9 are letters or digits; START + n starts the count at n


@dataclass(frozen=True)
class CoupledPositions(Positions):
    """Learned vectors by place, counted from the last sign on; all places lie below the context.

    mirrored   letters behind the first sign count down, as those of a word that is written backward
    """

    context: int
    mirrored: bool = False
    vectors = "learned"

    @recorded
    def places(self, tokens: Array) -> Array:
        """Return the places (..., T) of tokens (..., T), the first of which says where counting starts."""
        xp = namespace(tokens)
        is_letter = (tokens < SYMBOLS) & (xp.arange(tokens.shape[-1]) > 0)
        part = xp.cumsum(~is_letter, axis=-1)  # 1 behind the first token, 2 behind the first sign, 3 behind the second
        first, second = (xp.sum(is_letter & (part == n), axis=-1, keepdims=True) for n in (1, 2))
        count = xp.cumsum(is_letter, axis=-1) - xp.where(part > 1, first, 0) - xp.where(part > 2, second, 0)
        if self.mirrored:
            count = xp.where(part > 1, first + 1 - count, count)
        start = xp.maximum(tokens[..., :1] - START, 0)
        return xp.clip(start + count, 0, self.context - 1)


def register_coupled() -> None:
    """Make coupled positions known by the names "coupled" and "coupled_mirrored"."""
    for name, mirrored in (("coupled", False), ("coupled_mirrored", True)):
        if name not in registry.known("positions"):
            register_positions(name, partial(_build, mirrored=mirrored))


def _build(config: TransformerConfig, *, bidirectional: bool, mirrored: bool) -> CoupledPositions:
    return CoupledPositions(config.context, mirrored)


def sequences(operation: str, lengths: Array, rng: np.random.Generator, starts: tuple[int, int] = (0, 1)) -> Examples:
    """Return a sequence of each length, whose count starts anywhere from `starts[0]` to below `starts[1]`.

    copy, reverse   letters, then the same, or the same backward
    addition        two numbers and their sum, the last digits first, each with a zero behind: a sum is no longer
    """
    rows: list[Array] = []
    prompts: list[int] = []
    for n, count in zip(*np.unique(lengths, return_counts=True), strict=True):
        first = START + rng.integers(*starts, size=(count, 1))
        a, b = rng.integers(SYMBOLS, size=(2, count, n))
        question, answer = [a], a[:, ::-1] if operation == "reverse" else a
        if operation == "addition":
            a, b = (np.pad(x, ((0, 0), (0, 1))) for x in (a, b))
            question, answer = [a, np.full((count, 1), PLUS), b], np.zeros_like(a)
            carry = np.zeros(count, dtype=a.dtype)
            for at in range(n + 1):
                carry, answer[:, at] = np.divmod(a[:, at] + b[:, at] + carry, SYMBOLS)
        prompt = np.concatenate([first, *question, np.full((count, 1), EQUALS)], axis=1)
        rows += list(np.concatenate([prompt, answer], axis=1))
        prompts += [prompt.shape[1]] * int(count)
    return decoder_examples(rows, prompts)
