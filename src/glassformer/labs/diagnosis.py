"""What a wrong answer is: one hypothesis after the other, until one explains all that is wrong.

Each claims a finding only if it reproduces the learner's numbers, repairs them, or makes the error vanish, on every
input tried.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from .answers import Finding, is_close, reference, scale_of
from .case import Case, Found, equal, is_right
from .changes import WEAK, by_change, by_line, by_mistake, by_repair, by_value, is_lost, of_lost
from .lab import signature
from .terms import Pairs, fitted, is_plain
from .trees import flat

SINGLE = float(np.finfo(np.float32).eps)


def diagnose(case: Case) -> list[Finding]:
    """Return what is wrong with each result; one finding for all where one mistake explains them."""
    wrong = case.wrong
    lost = {name for name in wrong if any(is_lost(f[name], r[name]) for _, f, r in case.pairs)}
    if not lost:
        return _diagnosed(case, wrong)
    # Only finite numbers are explained: those of other inputs, or of other results.
    finding, pairs = of_lost(case, sorted(lost)), case.pairs
    finite = [pair for pair in pairs if not any(is_lost(pair[1][name], pair[2][name]) for name in lost)]
    if len(finite) < 3:
        kept = [name for name in pairs[0][2] if name not in lost]
        finite = [(e, {n: f[n] for n in kept}, {n: r[n] for n in kept}) for e, f, r in pairs]
    rest = replace(case, pairs=finite)
    found = _diagnosed(rest, rest.wrong) if rest.wrong else []
    return [*(one for one in found if one.kind != "unknown"), finding]


def _diagnosed(case: Case, wrong: Sequence[str]) -> list[Finding]:
    best: tuple[tuple[int, ...], list[Finding]] = (), []
    for hypothesis in HYPOTHESES:
        if hypothesis is by_value and best[1]:
            break
        found = hypothesis(case, wrong)
        listed = [found[""]] if "" in found else [found[name] for name in wrong if name in found]
        if not listed:
            continue
        is_whole = "" in found or len(listed) == len(wrong)
        strength = 2 if hypothesis is by_mistake else strength_of(listed[0])
        if is_whole and strength == 2:
            return listed
        if (is_whole, strength) > best[0]:
            best = (is_whole, strength), listed
    return best[1]


def strength_of(finding: Finding) -> int:
    """Return how much a finding is believed: 0 if it may be an accident, 1 if others are better, 2 if it is plain."""
    is_accident = not is_plain(finding) or "before all else" in finding.words + finding.remedy
    return 0 if is_accident else 1 if finding.kind in WEAK and not finding.line else 2


# --- hypotheses: the results themselves -------------------------------------------------------------------------------


def by_layout(case: Case, wrong: Sequence[str]) -> Found:
    """Compare with the right results exchanged, transposed, turned around or in another order."""
    for one, other in itertools.combinations(wrong, 2):
        if all(equal(f[one], r[other]) and equal(f[other], r[one]) for _, f, r in case.pairs):
            return {"": Finding("swapped", f"{one} and {other} are exchanged: each is the other one's", result=one)}
    return {name: finding for name in wrong for finding in _rearranged(case.pairs, name)}


def _rearranged(pairs: Pairs, name: str) -> Iterator[Finding]:
    both = [(found[name], right[name]) for _, found, right in pairs]
    axes = range(-both[0][0].ndim, 0)
    for axis in axes if all(x.dtype.kind == "f" and np.isfinite(x).all() for x, _ in both) else ():
        if all(equal(np.sort(x, axis), np.sort(y, axis)) for x, y in both):
            yield Finding("swapped", f"{name} has the right numbers in another order along axis {axis}", result=name)
    for a, b in itertools.combinations(axes, 2):
        if all(equal(np.swapaxes(x, a, b), y) for x, y in both):
            yield Finding("transposed", f"{name} is transposed: its axes {a} and {b} are exchanged", result=name)
    if both[0][1].dtype == bool and all(equal(~x, y) for x, y in both):
        yield Finding("mask", f"{name} is turned around: True where it must be False", result=name)


def by_terms(case: Case, wrong: Sequence[str]) -> Found:
    """Fit the terms of the derivation."""
    found = {name: fitted(case.exercise, case.pairs, name) for name in wrong}
    return {name: finding for name, finding in found.items() if finding}


def by_precision(case: Case, wrong: Sequence[str]) -> Found:
    """Recognize the error of float32 arithmetic in a float64 result."""
    made = {}
    for name in wrong:
        scales = [scale_of(case.exercise, e.args, name, r[name]) for e, _, r in case.pairs]
        near = [is_close(f[name], r[name], s, 40 * SINGLE) for (_, f, r), s in zip(case.pairs, scales, strict=True)]
        if case.pairs[0][2][name].dtype.kind == "f" and all(near):
            words = f"{name} is right to 7 digits only: float32 is used somewhere although float64 was given"
            made[name] = Finding("wrong dtype", words, result=name)
    return made


def by_input(case: Case, wrong: Sequence[str]) -> Found:
    """Look for inputs on which the learner's function is right: what is special about them is what it gets wrong."""
    names = signature(case.exercise)
    known = [flat(dict(zip(names, example.args, strict=False))) for example, _, _ in case.pairs[:3]]
    probes = list(_probes(known))
    tried: list[Pairs] = []
    for _finding, name, change in probes:
        head, _dot, key = name.partition(".")
        made: Pairs = []
        for (example, _, _), values in zip(case.pairs, known, strict=False):
            one, at, new = copy.copy(example), names.index(head), change(values[name])
            one.scales = {}
            one.args = (*one.args[:at], {**one.args[at], key: new} if key else new, *one.args[at + 1 :])
            made.append((one, {}, reference(case.exercise, one.args)))
        tried.append(made)
    outcomes = iter(next(case.run([one.args for made in tried for one, _, _ in made]), []))
    for (finding, *_rest), made in zip(probes, tried, strict=True):
        answers = list(itertools.islice(outcomes, len(made)))
        is_telling = any(np.any(value) for _, _, right in made for value in right.values())
        if is_telling and is_right(replace(case, pairs=made), answers):
            return {"": finding}
    return {}


def _probes(known: list[dict[str, Any]]) -> Iterator[tuple[Finding, str, Callable[[Array], Array]]]:
    """Yield changes of an input, each with what it means if it makes the function right."""
    for name, x in known[0].items():
        kind = x.dtype.kind if isinstance(x, np.ndarray) else ""
        if kind == "b":
            words = f"it is right where `{name}` is True throughout: look at what `{name}` does"
            yield Finding("mask", words), name, np.ones_like
        if kind == "i" and any((one[name] < 0).any() for one in known):
            words = f"it is right where no entry of `{name}` is negative: look at what those do"
            yield Finding("mask", words), name, np.abs


HYPOTHESES = by_layout, by_terms, by_mistake, by_line, by_change, by_precision, by_input, by_repair, by_value
"""In the order in which they are believed."""
