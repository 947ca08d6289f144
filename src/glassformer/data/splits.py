"""Three parts of the data that share no example: to train on, to choose settings by, to test on."""

import hashlib
import unicodedata
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError
from ..core.settings import check_count

Example = TypeVar("Example")

TEST_SHARE = VALIDATION_SHARE = 0.1
"""Of what a hash splits."""
PATIENCE = 20_000
"""Draws without a new question, after which there is none."""


class Splits(NamedTuple):
    """The examples of each part, such as questions, or pairs of a question and its answer."""

    train: list[Any]
    validation: list[Any]
    held_out: list[Any]

    @property
    def note(self) -> str:
        """The line about the number of examples of each part."""
        return "{:,} examples to train on, {:,} to choose settings by, {:,} to test on".format(*map(len, self))

    def map(self, function: Callable[[Any], Any]) -> "Splits":
        """Return the same parts of what a function makes of each example."""
        return Splits(*([function(example) for example in part] for part in self))

    def answered(self, answer: Callable[[str], str]) -> "Splits":
        """Return each question with its answer."""
        return self.map(lambda question: (question, answer(question)))


def split(
    examples: Iterable[Example],
    shares: tuple[float, ...] = (),
    *,
    seed: int | None = None,
    key: Callable[[Example], Hashable] | None = None,
) -> Splits:
    """Split examples so that those with the same key are in the same part.

    seed     draws the part of each key; None: a hash of the key, a text, decides on it, the same on every machine
    shares   of the keys that are drawn for training and for validation; the rest is held out. A hash holds out a tenth,
             and another to validate
    key      None: each example goes by itself
    """
    if seed is None:
        splits = Splits([], [], [])
        for example in examples:
            splits[_part_of(example if key is None else key(example))].append(example)
        return splits
    groups: dict[Hashable, list[Example]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(number if key is None else key(example), []).append(example)
    ordered = list(groups.values())
    train, *others = (
        [example for i in part for example in ordered[i]] for part in random_split(len(ordered), shares, seed)
    )
    return Splits(train, others[0] if len(others) > 1 else [], others[-1])


def random_split(count: int, shares: tuple[float, ...], seed: int) -> list[Array]:
    """Return the numbers 0 … count − 1 in random order, cut at these shares of them; the last part takes the rest."""
    check_count("seed", seed, least=0)
    if count < len(shares) + 1:
        examples = "1 example" if count == 1 else f"{count} examples"
        raise DataError(f"{examples} cannot be split into {len(shares) + 1} parts", hint="use more data")
    order = np.random.default_rng(seed).permutation(count)
    cuts = [int(share * count) for share in np.cumsum(shares)]
    # Every part gets at least one example, however few there are.
    for part in range(len(cuts)):
        cuts[part] = min(max(cuts[part], part + 1), count - len(cuts) + part)
    return np.split(order, cuts)


def draw_splits(
    draw: Callable[[], str], asked: tuple[int | None, ...], usual: tuple[int, ...] = (20_000, 1000, 1000)
) -> Splits:
    """Draw distinct questions; a hash of each decides on its part.

    asked   how many of each part; None: as `usual`, or as many as there are
    """
    wanted = [most if size is None else size for size, most in zip(asked, usual, strict=True)]
    splits, seen, idle = Splits([], [], []), set[str](), 0
    while idle < PATIENCE and any(len(part) < size for part, size in zip(splits, wanted, strict=True)):
        question = draw()
        idle += 1
        if question not in seen:
            number = _part_of(question)
            if len(splits[number]) < wanted[number]:
                seen.add(question)
                splits[number].append(question)
                idle = 0
    for name, part, size in zip(Splits._fields, splits, asked, strict=True):
        if len(part) < (size or 1):
            raise ConfigError(
                f"{name} is {size or 'at least 1'}, but only {len(part):,} different questions for it were found",
                hint=f"lower {name}, or make the questions longer",
            )
    return splits


def hash_fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone: the same on every machine and for every seed."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=7).digest()) / 2**56


def normalized(text: str) -> str:
    """Return what two spellings of the same text have in common: neither case nor white space nor width count."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _part_of(key: Any) -> int:
    fraction = hash_fraction(key)
    return 2 if fraction < TEST_SHARE else 1 if fraction < TEST_SHARE + VALIDATION_SHARE else 0
