"""What a function returned, compared with what it must: valid first, then equal within rounding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from .draw import Example
from .lab import Exercise, signature
from .sandbox import Outcome
from .trees import arrays_in, cast_floats, results

SINGLE_ALLOWED = 2e-3
"""How far a right answer in float32 may be off, relative to the largest number in play: far above rounding."""
SINGLE = 1e-5
"""An error below this, in a float64 answer, is that of float32 arithmetic."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    kind: str
    """In a word or two: "missing term", "wrong axis", "raised", …"""
    words: str
    """One sentence."""
    evidence: str = ""
    """The numbers behind it."""
    line: int = 0
    """The line of the learner's file."""
    result: str = ""
    """The name of the result that is wrong."""


def reference(exercise: Exercise, args: Any) -> dict[str, Array]:
    """Return the right results, computed in float64 whatever the arguments are."""
    with np.errstate(all="ignore"):
        return results(exercise.reference(*cast_floats(tuple(args), np.float64)), exercise.returns)


def scale_of(exercise: Exercise, args: Any, name: str, right: Array) -> float:
    """Return the largest number that a result is computed from: the terms may be larger than their sum."""
    sizes = [np.abs(right[np.isfinite(right)]).max(initial=0.0)] if right.dtype.kind == "f" else [1.0]
    sizes += [float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in arrays_in(args) if x.dtype.kind == "f"]
    with np.errstate(all="ignore"):
        for term in exercise.terms.get(name, {}).values():
            sizes.append(float(np.abs(np.nan_to_num(np.asarray(term(*args), np.float64))).max(initial=0.0)))
    return max(sizes) or 1.0


def is_close(found: Array, right: Array, scale: float, allowed: float) -> bool:
    """Tell whether two results are equal within rounding; infinities must be the same."""
    if found.shape != right.shape:
        return False
    if right.dtype.kind in "biu" and found.dtype.kind in "biu":
        return bool(np.array_equal(found, right))
    finite = np.isfinite(right)
    with np.errstate(all="ignore"):
        if not np.array_equal(found[~finite], right[~finite], equal_nan=True):
            return False
        return bool(np.all(np.abs(found[finite] - right[finite]) <= allowed * scale))


def broken(exercise: Exercise, outcome: Outcome, example: Example) -> Finding | None:
    """Return why an outcome is no answer at all: it raised, or returned nothing, or something else; None if it is."""
    if finding := failure(exercise, outcome, shapes_of(exercise, example.args)):
        return finding
    try:
        found = results(outcome.value, exercise.returns)
    except ValueError as error:
        wanted = ", ".join(exercise.returns)
        return Finding("wrong result", f"{error}; return {wanted}")
    right = reference(exercise, example.args)
    if set(found) != set(right):
        lost, more = sorted(set(right) - set(found)), sorted(set(found) - set(right))
        words = f"lacks {', '.join(lost)}" if lost else f"has {', '.join(more)}, which nobody asked for"
        return Finding("wrong result", f"the result {words}")
    for name, wanted in right.items():
        if finding := misfit(name, found[name], wanted, example):
            return swapped(name, found, right) or finding
    if outcome.wrote:
        names = signature(exercise)
        which = ", ".join(f"`{names[at]}`" for at in outcome.wrote if at < len(names))
        words = f"it writes into its argument {which}; copy it first, or compute a new array"
        return Finding("wrote to input", words)
    return None


def swapped(name: str, found: dict[str, Array], right: dict[str, Array]) -> Finding | None:
    """Recognize a result that has the shape of another one because they are returned in each other's place."""
    for other, wanted in right.items():
        has_its_shape = other != name and found[other].shape == right[name].shape
        if has_its_shape and is_close(found[name], wanted, float(np.abs(wanted).max(initial=1.0)), SINGLE):
            return Finding("swapped", f"{name} and {other} are returned in each other's place", result=name)
    return None


def failure(exercise: Exercise, outcome: Outcome, given: str) -> Finding | None:
    """Return how a call failed, in words."""
    error, words, line = outcome.error, outcome.words, outcome.line
    if not error:
        return None
    if error == "NotImplementedError":
        return Finding("empty", f"{exercise.name} is still to be written", line=line)
    if error == "missing":
        return Finding("missing function", f"the file defines no function {exercise.name}")
    if error == "unreadable":
        return Finding("wrong result", f"it returns {words}; return NumPy arrays")
    when = " while the file was loaded" if outcome.is_loading else f". It was given {given}"
    if error == "time":
        return Finding("too slow", f"{words}: a loop may never end{when}")
    if error == "memory":
        return Finding("too much memory", f"it asked for more memory than a lab may have{when}", line=line)
    if error == "ended":
        return Finding("ended", f"{words}{when}")
    if error in ("SystemExit", "KeyboardInterrupt"):
        return Finding("ended", "it leaves the program (exit) instead of returning", line=line)
    if error == "SyntaxError" or error.endswith("IndentationError"):
        return Finding("not Python", f"the file is not Python: {words}", line=line)
    if error == "TypeError" and not line and re.search(r"\(\) (takes|missing) .*argument", words):
        names = signature(exercise)
        words = f"{exercise.name} takes ({', '.join(names)}); yours does not take {len(names)} arguments"
        return Finding("wrong arguments", words)
    if error == "ours":
        return Finding("raised", "a lab may not call glassformer: write it yourself, in this file", line=line)
    when = "while the file was loaded" if outcome.is_loading else f"given {given}"
    return Finding("raised", f"it raises {error}: {words or 'without words'}", when, line=line)


def misfit(name: str, found: Array, right: Array, example: Example) -> Finding | None:
    """Return what is wrong with the shape or the dtype of a result."""
    if found.shape != right.shape:
        return _shape(name, found, right, example)
    if right.dtype.kind == "b" and found.dtype.kind != "b":
        return Finding("wrong dtype", f"{name} has dtype {found.dtype}; return booleans", result=name)
    if right.dtype.kind in "iu" and found.dtype.kind not in "iu":
        return Finding("wrong dtype", f"{name} has dtype {found.dtype}; return whole numbers", result=name)
    is_float = right.dtype.kind == "f"
    if is_float and found.dtype.kind == "c":
        return Finding("wrong dtype", f"{name} is complex; return real numbers", result=name)
    lowest = np.finfo(example.dtype).eps
    if is_float and found.dtype.kind == "f" and np.finfo(found.dtype).eps > lowest * 1.5:
        words = f"{name} has dtype {found.dtype} although {example.dtype} was given: something was cast on the way"
        return Finding("wrong dtype", words, result=name)
    return None


def _shape(name: str, found: Array, right: Array, example: Example) -> Finding:
    fact = f"{name} has shape {found.shape}, not {right.shape}"
    sizes = ", ".join(f"{axis} = {size}" for axis, size in example.sizes.items())
    at = f"with {sizes}"
    if found.ndim == right.ndim and found.ndim > 1 and found.shape == (*right.shape[:-2], *right.shape[:-3:-1]):
        return Finding("transposed", f"{fact}: it is transposed", at, result=name)
    if sorted(found.shape) == sorted(right.shape):
        return Finding("transposed", f"{fact}: its axes are in another order", at, result=name)
    if found.ndim > right.ndim and found.shape[found.ndim - right.ndim :] == right.shape:
        axes = tuple(range(found.ndim - right.ndim))
        words = f"{fact}: sum it over the axes {axes} along which the argument was broadcast"
        return Finding("not summed", words, at, result=name)
    if found.ndim == right.ndim and all(b in (1, a) for a, b in zip(found.shape, right.shape, strict=True)):
        return Finding("not summed", f"{fact}: sum it over the axis along which it was broadcast", at, result=name)
    if found.ndim < right.ndim or found.size < right.size:
        return Finding(
            "wrong shape", f"{fact}: a sum may run over too many axes, or lack keepdims=True", at, result=name
        )
    return Finding("wrong shape", fact, at, result=name)


def shapes_of(exercise: Exercise, args: Any) -> str:
    """Return the arguments of a call by name and shape."""

    def said(x: Any) -> str:
        if isinstance(x, np.ndarray):
            return f"{x.dtype} {x.shape}"
        return f"{len(x)} arrays" if isinstance(x, dict) else repr(x)

    return ", ".join(f"{name}: {said(x)}" for name, x in zip(signature(exercise), args, strict=False))


def wrong_results(exercise: Exercise, outcome: Outcome, example: Example) -> dict[str, tuple[Array, Array]]:
    """Return the results that differ, each with the right one; the outcome must not be `broken`."""
    allowed = exercise.allowed if example.dtype == np.float64 else SINGLE_ALLOWED
    found, right = results(outcome.value, exercise.returns), reference(exercise, example.args)
    return {
        name: (found[name], wanted)
        for name, wanted in right.items()
        if not is_close(found[name], wanted, scale_of(exercise, example.args, name, wanted), allowed)
    }
