"""Three splits that share no question: to train on, to choose settings by, to test on."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..errors import ConfigError
from .examples import hash_fraction

TEST_SHARE = VALIDATION_SHARE = 0.1
PATIENCE = 20_000  # draws without a new question, after which there is none


class Splits(NamedTuple):
    """Questions, or examples, of each part."""

    train: list[Any]
    validation: list[Any]
    held_out: list[Any]

    @property
    def note(self) -> str:
        """How many there are of each."""
        return "{:,} examples to train on, {:,} to choose settings by, {:,} to test on".format(*map(len, self))


def split_by_hash(questions: Iterable[str]) -> Splits:
    """Split questions by a hash of each: about a tenth to validate, a tenth to test, the same for every seed."""
    splits = Splits([], [], [])
    for question in questions:
        splits[_part_of(question)].append(question)
    return splits


def draw_splits(draw: Callable[[], str], *, asked: tuple[int | None, ...], usual: tuple[int, ...]) -> Splits:
    """Draw distinct questions; a hash of each decides on its part.

    asked   how many of each part; None: as `usual`, or as many as there are
    """
    for name, size in zip(Splits._fields, asked, strict=True):
        if size is not None:
            check_whole(name, size, least=1)
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


def check_whole(name: str, value: Any, *, least: int, most: int | None = None) -> None:
    """Refuse a setting that is not a whole number in its range."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        raise ConfigError(f"{name} is {value!r}", hint=f"use a whole number {within(least, most)}")


def check_flag(name: str, value: Any) -> None:
    """Refuse a setting that is neither true nor false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}", hint="use true or false")


def within(least: int, most: int | None) -> str:
    """Say a range in words."""
    return f"from {least:,} on" if most is None else f"from {least:,} to {most:,}"


def _part_of(question: str) -> int:
    fraction = hash_fraction(question)
    return 2 if fraction < TEST_SHARE else 1 if fraction < TEST_SHARE + VALIDATION_SHARE else 0
