"""What a wrong answer is: its terms by least squares, its layout, a changed solution, a repaired file.

Each mechanism claims a finding only if it reproduces the learner's numbers, or repairs them, on every input tried.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from ..arrays import Array
from .answers import SINGLE, Finding, is_close, scale_of
from .draw import Example
from .lab import Exercise
from .mutants import Mutant, mutants
from .terms import Pairs, equal, error_of, explains, fitted, pooled, scaled
from .trees import cast_floats, results

SECONDS = 0.8
"""How long changes of the learner's file are tried."""
LINES = 100_000
"""How many lines a changed solution may run."""
INTO_ITSELF = re.compile(r"\b(\w+)\.(?:append|extend)\(\1\)")
"""A list put into itself, of which NumPy makes an array without end."""
WEAK = ("wrong variable", "not finite")
"""Findings that a repaired file may correct."""
LAST = "wrong variable"
"""The kind of change that is believed only if nothing else explains the numbers: there are so many of it."""
REVERSED = {"missing term": "extra term", "extra term": "missing term", "not summed": "wrong axis"}
"""What a change of the learner's file mends, where that is not what the change itself would be called."""


def diagnose(exercise: Exercise, pairs: Pairs) -> list[Finding]:
    """Return what is wrong with each result; one finding for all where one mistake explains them."""
    wrong = [name for name in pairs[0][2] if any(_differs(exercise, name, *pair) for pair in pairs)]
    if finding := exchanged(pairs, wrong):
        return [finding]
    found = {name: turned(pairs, name) or fitted(exercise, pairs, name) or moved(pairs, name) for name in wrong}
    if all(found.values()) and len(wrong) == 1:
        return [one for one in found.values() if one]
    changed = dict(reversed(list(matching(exercise, pairs, wrong))))
    whole = changed.get("")
    if whole is not None and whole.kind != LAST:
        return [_of_mutant(whole, *wrong)]
    for name in wrong:
        mutant = changed.get(name, whole)
        if found[name] is None and mutant is not None and mutant.kind != LAST:
            found[name] = _of_mutant(mutant, name)
        found[name] = (
            found[name]
            or scaled(exercise, pairs, name)
            or pooled(exercise, pairs, name)
            or rounded(exercise, pairs, name)
            or (_of_mutant(mutant, name) if mutant is not None else None)
            or not_finite(pairs, name)
        )
    return [one for one in found.values() if one is not None]


def _differs(exercise: Exercise, name: str, example: Example, found: Any, right: Any) -> bool:
    scale = scale_of(exercise, example.args, name, right[name])
    return not is_close(found[name], right[name], scale, exercise.allowed)


# --- layout -----------------------------------------------------------------------------------------------------------


def not_finite(pairs: Pairs, name: str) -> Finding | None:
    for example, found, right in pairs:
        wrong = ~np.isfinite(found[name]) & np.isfinite(right[name]) if found[name].dtype.kind == "f" else np.zeros(1)
        if wrong.any():
            what = "NaN" if np.isnan(found[name]).any() else "infinite"
            sizes = ", ".join(f"{axis} = {size}" for axis, size in example.sizes.items())
            words = f"{name} is {what} in {int(wrong.sum())} of {found[name].size} entries"
            return Finding("not finite", words, f"with {sizes}", result=name)
    return None


def rounded(exercise: Exercise, pairs: Pairs, name: str) -> Finding | None:
    """Recognize the error of float32 arithmetic in a float64 result."""
    for example, found, right in pairs:
        scale = scale_of(exercise, example.args, name, right[name])
        if right[name].dtype.kind != "f" or not is_close(found[name], right[name], scale, SINGLE):
            return None
        # An error that follows the arguments smoothly is a formula's; rounding is not smooth, but never larger.
        if not is_close(found[name], right[name], scale, 40 * float(np.finfo(np.float32).eps)):
            return None
    words = f"{name} is right to 7 digits only: float32 is used somewhere although float64 was given"
    return Finding("wrong dtype", words, result=name)


def exchanged(pairs: Pairs, wrong: Sequence[str]) -> Finding | None:
    """Recognize two results that were returned in each other's place."""
    for one, other in itertools.combinations(wrong, 2):
        if all(equal(f[one], r[other]) and equal(f[other], r[one]) for _, f, r in pairs):
            return Finding("swapped", f"{one} and {other} are exchanged: each is the other one's", result=one)
    return None


def turned(pairs: Pairs, name: str) -> Finding | None:
    """Recognize a result whose axes are exchanged or reversed."""
    ndim = pairs[0][1][name].ndim
    for a, b in itertools.combinations(range(-ndim, 0), 2):
        if all(equal(np.swapaxes(found[name], a, b), right[name]) for _, found, right in pairs):
            return Finding("transposed", f"{name} is transposed: its axes {a} and {b} are exchanged", result=name)
    if pairs[0][2][name].dtype == bool and all(equal(~found[name], right[name]) for _, found, right in pairs):
        return Finding("mask", f"{name} is turned around: True where it must be False", result=name)
    return None


def moved(pairs: Pairs, name: str) -> Finding | None:
    """Recognize a result that is shifted by one along an axis."""
    for axis in range(-pairs[0][1][name].ndim, 0):
        for step in (1, -1):
            inner = [
                (np.roll(found[name], step, axis), right[name])
                for _, found, right in pairs
                if found[name].shape[axis] > 2
            ]
            cut = slice(1, None) if step == 1 else slice(None, -1)
            same = [np.moveaxis(a, axis, 0)[cut] for a, _ in inner], [np.moveaxis(b, axis, 0)[cut] for _, b in inner]
            if (
                inner
                and all(equal(a, b) for a, b in zip(*same, strict=True))
                and any((b != b.ravel()[:1]).any() for b in same[1])
            ):
                where = "early" if step == 1 else "late"
                return Finding("off by one", f"{name} is shifted along axis {axis}: one place too {where}", result=name)
    return None


# --- a changed solution -----------------------------------------------------------------------------------------------


def matching(exercise: Exercise, pairs: Pairs, wrong: Sequence[str]) -> Iterator[tuple[str, Mutant]]:
    """Yield changes of the solution that give the learner's numbers: of all results (""), or of one by name."""
    seen: set[str] = set()
    end = time.process_time() + SECONDS
    # The input with the largest error first: most changes are ruled out by it.
    order = sorted(pairs, key=lambda pair: -max(error_of(pair, name) for name in wrong))
    for mutant, call in _changed_solutions(exercise):
        if time.process_time() > end:
            return
        same = {*pairs[0][2]}
        for pair in order:
            if (values := _run(call, exercise, pair[0])) is None:
                same = set()
            same = {name for name in same if name in values and explains(values[name], pair, name)} if values else set()
            if not same.intersection(wrong):
                break
        if same == {*pairs[0][2]}:
            yield "", mutant
            return
        for name in same.intersection(wrong) - seen:
            seen.add(name)
            yield name, mutant


def _changed_solutions(exercise: Exercise) -> Iterator[tuple[Mutant, Any]]:
    """Yield typical mistakes of the lab, then those made by rule, each with the function that makes it."""
    for label, call in exercise.mistakes.items():
        kind, _, words = label.partition(": ")
        yield Mutant(kind, words, 0, ""), call
    known: dict[str, Any] = {"__name__": "lab"}
    exec(compile(exercise.context, "<lab>", "exec"), known)
    for mutant in mutants(exercise.context, exercise.name):
        if INTO_ITSELF.search(mutant.source):
            continue
        namespace = dict(known)
        try:
            exec(compile(mutant.source, "<lab>", "exec"), namespace)
        except Exception:  # a change that is no Python
            continue
        yield mutant, namespace[exercise.name]


def _run(call: Any, exercise: Exercise, example: Example) -> dict[str, Array] | None:
    left = LINES

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError  # the change made an endless loop
        return count if frame.f_code.co_filename == "<lab>" else None

    before = sys.gettrace()
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            sys.settrace(count)
            return results(call(*cast_floats(example.args, np.float64)), exercise.returns)
    except Exception:  # a change that does not run
        return None
    finally:
        sys.settrace(before)


def _of_mutant(mutant: Mutant, *names: str) -> Finding:
    listed = ", ".join(names)
    return Finding(mutant.kind, f"{listed} {'are' if names[1:] else 'is'} what comes out {mutant.words}", result=listed)


# --- a repaired file --------------------------------------------------------------------------------------------------


def repaired(exercise: Exercise, runner: Any, pairs: Pairs, ours: Sequence[str] = ()) -> Finding | None:
    """Change one place of the learner's own file; one that makes it right names the line and the mistake."""
    try:
        tried = list(mutants(runner.source, _defined(runner, exercise)))
        if not pairs[0][1]:  # nothing was returned: shapes that do not fit are a matter of axes first
            tried.sort(key=lambda one: one.kind not in ("wrong axis", "transposed"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    args = [example.args for example, _, _ in pairs[:3]]
    programs = (f"{runner.source}\n\n{one.source}" for one in tried)
    outcomes = runner.run(exercise.name, args, ours=ours, programs=programs)
    end = time.monotonic() + SECONDS
    for mutant, answers in zip(tried, outcomes, strict=False):
        if time.monotonic() > end:
            return None
        if len(answers) == len(args) and all(_is_right(exercise, a, p) for a, p in zip(answers, pairs, strict=False)):
            words = f"line {mutant.line} holds the mistake: one change there makes all of it right"
            kind = REVERSED.get(mutant.kind, mutant.kind)
            return Finding(kind, words, f"it becomes right {mutant.words}", line=mutant.line)
    return None


def _defined(runner: Any, exercise: Exercise) -> str:
    """Return the name under which the learner's function is defined."""
    names = [node.name for node in ast.parse(runner.source).body if isinstance(node, ast.FunctionDef)]
    return exercise.name if exercise.name in names else (names or [""])[0]


def _is_right(exercise: Exercise, outcome: Any, pair: Any) -> bool:
    example, _, right = pair
    if outcome.error:
        return False
    try:
        found = results(outcome.value, exercise.returns)
    except ValueError:
        return False
    return set(found) == set(right) and not any(
        _differs(exercise, name, example, found, right) or found[name].dtype != right[name].dtype for name in right
    )
