"""A learner's function with the inputs on which it is wrong, and how it is run again, changed or not."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from ..core.arrays import Array
from .answers import Finding, broken, differs, is_close, reference
from .draw import Example
from .lab import Exercise
from .sandbox import Local
from .terms import Pairs
from .trees import results

LINES = 100_000
"""How many lines a changed function may run."""
Found = dict[str, Finding]
"""What was found, by the result that it explains; "" for all of them."""


@dataclass
class Case:
    """A learner's function, the inputs on which it is wrong, and what it gives there."""

    exercise: Exercise
    runner: Any
    ours: Sequence[str]
    pairs: Pairs

    @property
    def wrong(self) -> list[str]:
        return [name for name in self.pairs[0][2] if any(differs(self.exercise, name, *pair) for pair in self.pairs)]

    def run(self, args: list[Any], programs: Any = None, more: str = "") -> Iterator[list[Any]]:
        """Run the function, or programs that define it; `more` holds what they share."""
        answers = iter(self.runner.run(self.exercise.name, args, ours=[*self.ours, more], programs=programs))
        is_endless = programs is not None and isinstance(self.runner, Local)  # a process of its own has limits
        return limited(answers, self.runner.file) if is_endless else answers


def limited(answers: Iterator[list[Any]], file: str) -> Iterator[list[Any]]:
    """Yield answers, each computed in at most `LINES` lines of a file: a change may make an endless loop."""
    before, left = sys.gettrace(), LINES

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError
        return count if frame.f_code.co_filename in (file, "<ours>") else None

    while True:
        left = LINES
        sys.settrace(count)
        try:
            one = next(answers, None)
        finally:
            sys.settrace(before)
        if one is None:
            return
        yield one


def answered(case: Case, tried: list[Example]) -> Pairs:
    """Run the function on other examples; the list ends where it gives no answer."""
    pairs: Pairs = []
    for example, outcome in zip(tried, next(case.run([one.args for one in tried])), strict=False):
        right = reference(case.exercise, example.args)
        if broken(case.exercise, outcome, example, right):
            break
        pairs.append((example, results(outcome.value, case.exercise.returns), right))
    return pairs


def is_right(case: Case, outcomes: list[Any]) -> bool:
    for outcome, (example, _, right) in zip(outcomes, case.pairs, strict=False):
        if outcome.error or broken(case.exercise, outcome, example, right):
            return False
        found = results(outcome.value, case.exercise.returns)
        if any(differs(case.exercise, name, example, found, right) for name in right):
            return False
    return bool(outcomes)


def equal(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype.kind not in "biufc":
        return False
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0 if b.dtype.kind == "f" else 1.0
    return is_close(a, b, scale, 1e-9)
