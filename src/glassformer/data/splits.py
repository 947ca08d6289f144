"""Three splits that share no question: to train on, to choose settings by, to test on."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

from ..errors import ConfigError

TEST_SHARE = VALIDATION_SHARE = 0.1
PATIENCE = 20_000  # draws without a new question, after which there is none


class Within(NamedTuple):
    """The range of a task's option that is a whole number; it stands in the annotation of the option."""

    least: int
    most: int | None = None


Seed = Annotated[int, Within(0)]
Count = Annotated[int, Within(1)]


class Splits(NamedTuple):
    """Questions, or pairs of a question and its answer, of each part."""

    train: list[Any]
    validation: list[Any]
    held_out: list[Any]

    @property
    def note(self) -> str:
        """How many there are of each."""
        return "{:,} examples to train on, {:,} to choose settings by, {:,} to test on".format(*map(len, self))

    def answered(self, answer: Callable[[str], str]) -> "Splits":
        """Return each question with its answer."""
        return Splits(*([(question, answer(question)) for question in part] for part in self))


def split_by_hash(questions: Iterable[str]) -> Splits:
    """Split questions by a hash of each: about a tenth to validate, a tenth to test, the same for every seed."""
    splits = Splits([], [], [])
    for question in questions:
        splits[_part_of(question)].append(question)
    return splits


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


def _part_of(question: str) -> int:
    fraction = hash_fraction(question)
    return 2 if fraction < TEST_SHARE else 1 if fraction < TEST_SHARE + VALIDATION_SHARE else 0
