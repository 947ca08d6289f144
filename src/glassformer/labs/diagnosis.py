"""What a wrong answer is: one hypothesis after the other, until one explains all that is wrong.

Each claims a finding only if it reproduces the learner's numbers, repairs them, or makes the error vanish, on every
input tried.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from ..arrays import Array
from .answers import Finding, broken, differs, is_close, reference, scale_of
from .draw import Example
from .lab import Exercise, signature
from .mutants import Mutant, mutants
from .sandbox import Local
from .terms import Pairs, error_of, explains, fitted, is_plain
from .trees import cast_floats, flat, results

SECONDS = 1.0
"""How long changed solutions are tried, in processor time."""
SINGLE = float(np.finfo(np.float32).eps)
LINES = 100_000
"""How many lines a changed function may run."""
WEAK = ("wrong variable", "not finite")
"""Findings that any other one is better than: there are so many ways to take another variable."""
REVERSED = {
    "missing term": "extra term", "extra term": "missing term", "not summed": "wrong axis",
    "extra function": "missing function", "missing function": "extra term",
}  # fmt: skip
"""What a change of the learner's file mends, where that is not what the change itself would be called."""

Found = dict[str, Finding]
"""What was found, by the result that it explains; "" for all of them."""


@dataclass
class Case:
    """A learner's function, the inputs on which it is wrong, and what it gives there."""

    exercise: Exercise
    runner: Any
    ours: Sequence[str]
    pairs: Pairs
    repairs: int = 1000
    """How many changes of the file are tried. A number, not a time: a busy machine gives the same answer."""

    @property
    def wrong(self) -> list[str]:
        return [name for name in self.pairs[0][2] if any(differs(self.exercise, name, *pair) for pair in self.pairs)]

    def run(self, args: list[Any], programs: Any = None, more: str = "") -> Iterator[list[Any]]:
        """Run the function, or programs that define it; `more` holds what they share."""
        answers = iter(self.runner.run(self.exercise.name, args, ours=[*self.ours, more], programs=programs))
        is_endless = programs is not None and isinstance(self.runner, Local)  # a process of its own has limits
        return limited(answers, self.runner.file) if is_endless else answers


def limited(answers: Iterator[list[Any]], file: str) -> Iterator[list[Any]]:
    """Yield answers, each computed in at most so many lines of a file: a change may make an endless loop."""
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
            with warnings.catch_warnings(action="ignore"):
                one = next(answers, None)
        finally:
            sys.settrace(before)
        if one is None:
            return
        yield one


def diagnose(case: Case) -> list[Finding]:
    """Return what is wrong with each result; one finding for all where one mistake explains them."""
    wrong = case.wrong
    best: tuple[tuple[bool, ...], list[Finding]] = (), []
    for hypothesis in HYPOTHESES:
        if hypothesis is by_neutral and best[1]:
            break
        found = hypothesis(case, wrong)
        listed = [found[""]] if "" in found else [found[name] for name in wrong if name in found]
        if not listed:
            continue
        is_whole = "" in found or len(listed) == len(wrong)
        is_strong = listed[0].kind not in WEAK and is_plain(listed[0])
        if is_whole and is_strong:
            return listed
        if (is_whole, is_strong) > best[0]:
            best = (is_whole, is_strong), listed
            case = replace(case, repairs=300 if is_whole else case.repairs)
    return best[1]


def answered(case: Case, tried: list[Example]) -> Pairs:
    """Run the function on other examples; the list ends where it gives no answer."""
    pairs: Pairs = []
    for example, outcome in zip(tried, next(case.run([one.args for one in tried])), strict=False):
        right = reference(case.exercise, example.args)
        if broken(case.exercise, outcome, example, right):
            break
        pairs.append((example, results(outcome.value, case.exercise.returns), right))
    return pairs


# --- hypotheses: the results themselves -------------------------------------------------------------------------------


def by_layout(case: Case, wrong: Sequence[str]) -> Found:
    """Compare with the right results exchanged, transposed, turned around or in another order."""
    for one, other in itertools.combinations(wrong, 2):
        if all(_equal(f[one], r[other]) and _equal(f[other], r[one]) for _, f, r in case.pairs):
            return {"": Finding("swapped", f"{one} and {other} are exchanged: each is the other one's", result=one)}
    return {name: finding for name in wrong for finding in _rearranged(case.pairs, name)}


def _rearranged(pairs: Pairs, name: str) -> Iterator[Finding]:
    both = [(found[name], right[name]) for _, found, right in pairs]
    axes = range(-both[0][0].ndim, 0)
    for axis in axes if all(x.dtype.kind == "f" and np.isfinite(x).all() for x, _ in both) else ():
        if all(_equal(np.sort(x, axis), np.sort(y, axis)) for x, y in both):
            yield Finding("swapped", f"{name} has the right numbers in another order along axis {axis}", result=name)
    for a, b in itertools.combinations(axes, 2):
        if all(_equal(np.swapaxes(x, a, b), y) for x, y in both):
            yield Finding("transposed", f"{name} is transposed: its axes {a} and {b} are exchanged", result=name)
    if both[0][1].dtype == bool and all(_equal(~x, y) for x, y in both):
        yield Finding("mask", f"{name} is turned around: True where it must be False", result=name)


def _equal(a: Array, b: Array) -> bool:
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0 if b.dtype.kind == "f" else 1.0
    return is_close(a, b, scale, 1e-9)


def by_terms(case: Case, wrong: Sequence[str]) -> Found:
    """Fit the terms of the derivation."""
    found = {name: fitted(case.exercise, case.pairs, name) for name in wrong}
    return {name: finding for name, finding in found.items() if finding}


def by_precision(case: Case, wrong: Sequence[str]) -> Found:
    """Recognize the error of float32 arithmetic in a float64 result, and what is not finite."""
    made = {}
    for name in wrong:
        scales = [scale_of(case.exercise, e.args, name, r[name]) for e, _, r in case.pairs]
        near = [is_close(f[name], r[name], s, 40 * SINGLE) for (_, f, r), s in zip(case.pairs, scales, strict=True)]
        is_float = case.pairs[0][2][name].dtype.kind == "f"
        bad = [(~np.isfinite(f[name]) & np.isfinite(r[name])).sum() for _, f, r in case.pairs] if is_float else []
        if is_float and all(near):
            words = f"{name} is right to 7 digits only: float32 is used somewhere although float64 was given"
            made[name] = Finding("wrong dtype", words, result=name)
        elif any(bad):
            made[name] = Finding("not finite", f"{name} is NaN or infinite in {max(bad)} entries", result=name)
    return made


# --- hypotheses: a changed solution -----------------------------------------------------------------------------------


def by_change(case: Case, wrong: Sequence[str]) -> Found:
    """Look for changes of the solution that give the learner's numbers, of all results or of one."""
    found: Found = {}
    names, end = {*case.pairs[0][2]}, time.process_time() + SECONDS
    # The input with the largest error first: most changes are ruled out by it.
    order = sorted(case.pairs, key=lambda pair: -max(error_of(pair, name) for name in wrong))
    for mutant, call in _changed_solutions(case.exercise):
        if time.process_time() > end:
            break
        same = names
        for pair in order:
            values = _run(call, case.exercise, pair[0])
            same = {name for name in same if name in values and explains(values[name], pair, name)}
            if not same.intersection(wrong):
                break
        if same == names:
            whole = _of_mutant(mutant, *wrong)
            if whole.kind not in WEAK:
                return {"": whole}
            found.setdefault("", whole)
        for name in same.intersection(wrong):
            if name not in found or found[name].kind in WEAK:
                found[name] = _of_mutant(mutant, name)
    return found


def _changed_solutions(exercise: Exercise) -> Iterator[tuple[Mutant, Callable[..., Any]]]:
    """Yield typical mistakes of the lab, then those made by rule, each with the function that makes it."""
    for label, call in exercise.mistakes.items():
        kind, _, words = label.partition(": ")
        yield Mutant(kind, words, 0, "", ""), call
    known: dict[str, Any] = {"__name__": "lab"}
    exec(compile(exercise.context, "<lab>", "exec"), known)
    for mutant in mutants(exercise.context, exercise.name):
        namespace = dict(known)
        try:
            exec(compile(mutant.source, "<lab>", "exec"), namespace)
        except Exception:  # a change that is no Python
            continue
        yield mutant, namespace[exercise.name]


def _run(call: Any, exercise: Exercise, example: Example) -> dict[str, Array]:
    def value() -> Iterator[Any]:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"), contextlib.suppress(Exception):
            yield results(call(*cast_floats(example.args, np.float64)), exercise.returns)

    has_loops = "for " in exercise.source or "while " in exercise.source
    return next(limited(value(), "<lab>") if has_loops else value(), {})


def _of_mutant(mutant: Mutant, *names: str) -> Finding:
    listed = ", ".join(names)
    is_power = "sqrt" in mutant.words or "** 2" in mutant.words
    kind = {"extra function": "wrong factor" if is_power else "missing function"}.get(mutant.kind, mutant.kind)
    return Finding(kind, f"{listed} {'are' if names[1:] else 'is'} what comes out {mutant.words}", result=listed)


# --- hypotheses: the learner's own function, changed or given other inputs --------------------------------------------


def by_repair(case: Case, _: Sequence[str]) -> Found:
    """Change one place of the learner's own file; one that makes it right names the line and the mistake."""
    args = [example.args for example, _, _ in case.pairs[:3]]
    try:
        own, rest = _split(case)
        tried = [*itertools.islice(mutants(case.runner.source, *own), case.repairs)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    if not case.pairs[0][1]:  # nothing was returned: shapes that do not fit are a matter of axes first
        tried.sort(key=lambda one: one.kind not in ("wrong axis", "transposed"))
    texts = ["\n\n".join({**own, one.function: one.source}.values()) for one in tried]
    ended = 0
    for mutant, text, first in zip(tried, texts, case.run(args[:1], texts, rest), strict=False):
        ended += any(outcome.error in ("time", "ended", "memory") for outcome in first)
        if ended == 3:  # each of them costs seconds
            break
        if _is_right(case, first) and _is_right(case, next(case.run(args, [text], rest))):
            words = f"line {mutant.line} holds the mistake: one change there makes all of it right"
            kind = REVERSED.get(mutant.kind, mutant.kind)
            return {"": Finding(kind, words, f"it becomes right {mutant.words}", line=mutant.line)}
    return {}


def _split(case: Case) -> tuple[dict[str, str], str]:
    """Return the functions that the learner wrote for this exercise, its own first, and the rest of the file."""
    lines, body = case.runner.source.splitlines(), ast.parse(case.runner.source).body
    texts = {node: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in body}
    defined = {node.name: text for node, text in texts.items() if isinstance(node, ast.FunctionDef)}
    name = next((name for name in (case.exercise.name, *defined) if name in defined), None)
    if name is None:
        raise ValueError("no function can be changed")
    given, solved = (
        {node.name for text in many for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        for many in (case.ours, [case.exercise.context])
    )
    own = {name: defined[name]} | {one: text for one, text in defined.items() if one not in given | solved}
    rest = [t for n, t in texts.items() if not isinstance(n, ast.Expr) and getattr(n, "name", "") not in {*own, *given}]
    return own, "\n".join(rest)


def _is_right(case: Case, outcomes: list[Any]) -> bool:
    for outcome, (example, _, right) in zip(outcomes, case.pairs, strict=False):
        if broken(case.exercise, outcome, example, right):
            return False
        found = results(outcome.value, case.exercise.returns)
        if any(differs(case.exercise, name, example, found, right) for name in right):
            return False
    return bool(outcomes)


def by_input(case: Case, wrong: Sequence[str], *, is_neutral: bool = False) -> Found:
    """Look for inputs on which the learner's function is right: what is special about them is what it gets wrong."""
    names = signature(case.exercise)
    known = [flat(dict(zip(names, example.args, strict=False))) for example, _, _ in case.pairs[:3]]
    probes = list(_probes(known, is_neutral))
    tried: list[Pairs] = []
    for _finding, name, change, source in probes:
        head, _dot, key = name.partition(".")
        made: Pairs = []
        for (example, _, _), values in zip(case.pairs, known, strict=False):
            one, at, new = copy.copy(example), names.index(head), change(values[source])
            one.args = (*one.args[:at], {**one.args[at], key: new} if key else new, *one.args[at + 1 :])
            made.append((one, {}, reference(case.exercise, one.args)))
        tried.append(made)
    outcomes = iter(next(case.run([one.args for made in tried for one, _, _ in made]), []))
    for (finding, *_rest), made in zip(probes, tried, strict=True):
        answers = list(itertools.islice(outcomes, len(made)))
        is_telling = any(np.any(value) for _, _, right in made for value in right.values())
        if is_telling and _is_right(replace(case, pairs=made), answers):
            return {"": finding}
    return {}


def _probes(
    known: list[dict[str, Any]], is_neutral: bool
) -> Iterator[tuple[Finding, str, Callable[[Array], Array], str]]:
    """Yield changes of an input, each with what it means if it makes the function right, and what it is made from."""
    kinds = {name: x.dtype.kind for name, x in known[0].items() if isinstance(x, np.ndarray)}
    floats = [name for name, kind in kinds.items() if kind == "f" and is_neutral]
    for name in (name for name, kind in kinds.items() if kind == "b" and not is_neutral):
        words = f"it is right where `{name}` is True throughout: look at what `{name}` does"
        yield Finding("mask", words), name, np.ones_like, name
    for name in (name for name, kind in kinds.items() if kind == "i" and not is_neutral):
        if any((one[name] < 0).any() for one in known):
            words = f"it is right where no entry of `{name}` is negative: look at what those do"
            yield Finding("mask", words), name, np.abs, name
    for a, b in itertools.combinations(floats, 2):
        if all(one[a].shape == one[b].shape for one in known):
            words = f"it is right where `{a}` and `{b}` are equal: one of them may stand in the other one's place"
            yield Finding("wrong variable", words), b, np.copy, a
    for name in floats:
        words = f"it is right where `{name}` is zero: look at the term with `{name}`"
        yield Finding("missing term", words), name, np.zeros_like, name
        words = f"it is right where `{name}` is one: look at the factor `{name}`"
        yield Finding("wrong factor", words), name, np.ones_like, name


def by_neutral(case: Case, wrong: Sequence[str]) -> Found:
    """Look for an argument without whose effect all is right: better than nothing."""
    return by_input(case, wrong, is_neutral=True)


HYPOTHESES = by_layout, by_terms, by_change, by_precision, by_input, by_repair, by_neutral
"""In the order in which they are believed."""
