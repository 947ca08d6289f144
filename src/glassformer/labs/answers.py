"""What a function returned, compared with what it must: valid first, then equal within rounding."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array
from .draw import Example
from .lab import Exercise, signature
from .sandbox import Outcome
from .trees import arrays_in, cast_floats, results

SINGLE_ALLOWED = 2e-3
"""How far a right answer in float32 may be off, relative to the largest number in play: far above rounding."""
Found = dict[str, Array]
"""Results by name."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    kind: str
    """In a word or two: "missing term", "wrong axis", "raised", …"""
    words: str
    """One sentence."""
    evidence: str = ""
    """The numbers behind it."""
    remedy: str = ""
    """What makes it right, or our solution wrong alike: shown from the second try on."""
    line: int = 0
    """The line of the learner's file."""
    result: str = ""
    """The name of the result that is wrong."""


def reference(exercise: Exercise, args: Any) -> Found:
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
    """Return whether two results are equal within rounding; infinities must be the same."""
    if found.shape != right.shape:
        return False
    if right.dtype.kind in "biu" and found.dtype.kind in "biu":
        return bool(np.array_equal(found, right))
    finite = np.isfinite(right)
    with np.errstate(all="ignore"):
        if not np.array_equal(found[~finite], right[~finite], equal_nan=True):
            return False
        return bool(np.all(np.abs(found[finite] - right[finite]) <= allowed * scale))


def broken(exercise: Exercise, outcome: Outcome, example: Example, right: Found) -> Finding | None:
    """Return why an outcome is no answer at all: it raised, or returned nothing, or something else; None if it is."""
    if outcome.error:
        return failure(exercise, outcome, shapes_of(exercise, example.args))
    try:
        found = results(outcome.value, exercise.returns)
    except ValueError as error:
        return Finding("wrong result", f"{error}; return {', '.join(exercise.returns)}")
    if set(found) != set(right):
        lost, more = sorted(set(right) - set(found)), sorted(set(found) - set(right))
        words = f"lacks {', '.join(lost)}" if lost else f"has {', '.join(more)}, which the lab does not ask for"
        return Finding("wrong result", f"the result {words}")
    for name, wanted in right.items():
        if finding := misfit(name, found[name], wanted, example):
            return swapped(name, found, right) or finding
    if outcome.wrote:
        names = signature(exercise)
        which = ", ".join(f"`{names[at]}`" for at in outcome.wrote if at < len(names))
        return Finding("wrote to input", f"it writes into its argument {which}; copy it first, or compute a new array")
    return None


def swapped(name: str, found: Found, right: Found) -> Finding | None:
    """Recognize a result that has the shape of another one because they are returned in each other's place."""
    for other, wanted in right.items():
        has_its_shape = other != name and found[other].shape == right[name].shape
        if has_its_shape and is_close(found[name], wanted, float(np.abs(wanted).max(initial=1.0)), 1e-5):
            return Finding("swapped", f"{name} and {other} are returned in each other's place", result=name)
    return None


def failure(exercise: Exercise, outcome: Outcome, given: str) -> Finding:
    """Return how a call failed, in words."""
    error, words, names = outcome.error, outcome.words, signature(exercise)
    when = " while the file was loaded" if outcome.is_loading else f". It was given {given}"
    if error == "TypeError" and not outcome.line and re.search(r"\(\) (takes|missing) .*argument", words):
        words = f"{exercise.name} is called with ({', '.join(names)}), which yours does not take"
        return Finding("wrong arguments", words)
    known = {
        "NotImplementedError": ("empty", f"{exercise.name} is still to be written"),
        "missing": ("missing function", f"the file defines no function {exercise.name}"),
        "unreadable": ("wrong result", f"it returns {words}; return NumPy arrays"),
        "time": ("too slow", f"{words}: a loop may never end{when}"),
        "memory": ("too much memory", f"it asked for more memory than a lab may have{when}"),
        "ended": ("ended", f"{words}{when}"),
        "SystemExit": ("ended", "it leaves the program (exit) instead of returning"),
        "KeyboardInterrupt": ("ended", "it leaves the program (exit) instead of returning"),
        "ours": ("raised", "a lab may not call glassformer: write it yourself, in this file"),
    }
    if error == "SyntaxError" or error.endswith("IndentationError"):
        known[error] = "not Python", f"the file is not Python: {words}"
    if error in known:
        return Finding(*known[error], line=outcome.line)
    at = "while the file was loaded" if outcome.is_loading else f"given {given}"
    return Finding("raised", f"it raises {error}: {words or 'without words'}", at, line=outcome.line)


def misfit(name: str, found: Array, right: Array, example: Example) -> Finding | None:
    """Return what is wrong with the shape or the dtype of a result."""
    if found.shape != right.shape:
        kind, words = _shape(found.shape, right.shape)
        sizes = ", ".join(f"{axis} = {size}" for axis, size in example.sizes.items())
        return Finding(kind, f"{name} has shape {found.shape}, not {right.shape}{words}", f"with {sizes}", result=name)
    wanted, given = right.dtype.kind, found.dtype.kind
    whole = ("iu", "whole numbers")
    named = {"b": ("b", "booleans"), "i": whole, "u": whole, "f": ("biuf", "real numbers")}
    if wanted in named and given not in named[wanted][0]:
        return Finding("wrong dtype", f"{name} has dtype {found.dtype}; return {named[wanted][1]}", result=name)
    if wanted == given == "f" and np.finfo(found.dtype).eps > np.finfo(example.dtype).eps * 1.5:
        words = f"{name} has dtype {found.dtype} although {example.dtype} was given: something was cast on the way"
        return Finding("wrong dtype", words, result=name)
    return None


def _shape(found: tuple[int, ...], right: tuple[int, ...]) -> tuple[str, str]:
    """Return in words what a wrong shape comes from."""
    more = len(found) - len(right)
    if len(found) > 1 and found == (*right[:-2], *right[:-3:-1]):
        return "transposed", ": it is transposed"
    if sorted(found) == sorted(right):
        return "transposed", ": its axes are in another order"
    if more > 0 and found[more:] == right:
        return "not summed", f": sum it over the axes {tuple(range(more))} along which the argument was broadcast"
    if more == 0 and all(b in (1, a) for a, b in zip(found, right, strict=True)):
        return "not summed", ": sum it over the axis along which it was broadcast"
    is_less = more < 0 or math.prod(found) < math.prod(right)
    return "wrong shape", ": a sum may run over too many axes, or lack keepdims=True" * is_less


def shapes_of(exercise: Exercise, args: Any) -> str:
    """Return the arguments of a call by name and shape."""

    def said(x: Any) -> str:
        if isinstance(x, np.ndarray):
            return f"{x.dtype} {x.shape}"
        return f"{len(x)} arrays" if isinstance(x, dict) else repr(x)

    return ", ".join(f"{name}: {said(x)}" for name, x in zip(signature(exercise), args, strict=False))


def differs(exercise: Exercise, name: str, example: Example, found: Found, right: Found) -> bool:
    """Return whether a result is not the right one, by more than rounding."""
    allowed = exercise.allowed if example.dtype == np.float64 else SINGLE_ALLOWED
    if name not in example.scales:
        example.scales[name] = scale_of(exercise, example.args, name, right[name])
    return not is_close(found[name], right[name], example.scales[name], allowed)
