"""A wrong result as a sum of known terms: which are missing, turned or scaled, by least squares over random inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..arrays import Array
from .answers import Finding, is_close
from .draw import Example
from .lab import Exercise, signature

EXACT = 1e-6
"""A fit or a match counts if what remains is below this, relative to the largest number in play."""
EXPLAINED = 1e-3
"""A mistake is believed if it leaves less than this part of the error unexplained."""
ROUND = 1e-4
"""Coefficients are read as a simple number if they are this near to one."""
SIMPLE = {0.0: "0", 1.0: "1", -1.0: "−1", 0.5: "½", 2.0: "2", -0.5: "−½", -2.0: "−2", 3.0: "3", 0.25: "¼", 4.0: "4"}

Pairs = list[tuple[Example, dict[str, Array], dict[str, Array]]]
"""Of several examples: the arguments, the learner's results and the right ones."""


def equal(a: Array, b: Array) -> bool:
    """Tell whether two results are the same numbers."""
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0 if b.dtype.kind == "f" else 1.0
    return is_close(a, b, scale, EXACT)


def error_of(pair: Any, name: str) -> float:
    """Return how far a result is off, where both are finite."""
    _, found, right = pair
    with np.errstate(all="ignore"):
        error = np.abs(found[name].astype(np.float64) - right[name].astype(np.float64))
    return float(error[np.isfinite(error)].max(initial=0.0))


def explains(value: Array, pair: Any, name: str) -> bool:
    """Tell whether a changed solution gives the learner's result, and not merely one that is nearly as good."""
    _, found, right = pair
    if value.dtype.kind in "biu" and right[name].dtype.kind in "biu":
        return value.shape == found[name].shape and bool(np.array_equal(value, found[name]))
    size = float(np.abs(right[name][np.isfinite(right[name])]).max(initial=0.0)) or 1.0
    return is_close(found[name], value, 1.0, max(EXPLAINED * error_of(pair, name), 1e-9 * size))


def fitted(exercise: Exercise, pairs: Pairs, name: str) -> Finding | None:
    """Write the result as a sum of the derivation's terms; read what is missing, turned or scaled."""
    if pairs[0][2][name].dtype.kind != "f":
        return None
    terms = _terms_of(exercise, name)
    columns, answer = _stacked(terms, pairs, name)
    solved = _solve(columns, answer, max(error_of(pair, name) for pair in pairs))
    if solved is None:
        return None
    labels = list(terms)
    off = [(label, c) for label, c in zip(labels, solved, strict=True) if abs(c - 1) > ROUND]
    if not off:
        return None
    sum_ = " + ".join(f"{_number(c)}·[{label.partition(':')[0]}]" for label, c in zip(labels, solved, strict=True))
    evidence = f"over {len(pairs)} random inputs, {name} = {sum_}, with nothing left over"
    return _read(name, off, len(labels), evidence)


def _terms_of(exercise: Exercise, name: str) -> Mapping[str, Any]:
    """Return the terms of a result; one that has none is a term itself."""
    return exercise.terms.get(name) or {f"{name}: {exercise.derivation.get(name, name)}": None}


def _read(name: str, off: list[tuple[str, float]], count: int, evidence: str) -> Finding:
    label, c = off[0]
    what, _, formula = label.partition(": ")
    place = f"the term {formula} ({what})" if count > 1 else f"all of {name}"
    same = len(off) == count > 1 and all(abs(other - c) < ROUND for _, other in off)
    if same:
        place = f"all of {name}"
    if abs(c) < ROUND:
        kind, words = "missing term", f"{name} lacks {place}" if count > 1 else f"{name} is zero everywhere"
    elif abs(c + 1) < ROUND:
        kind, words = "wrong sign", f"{place} has the wrong sign"
    else:
        kind, words = "wrong factor", f"{place} has the factor {_number(c)} instead of 1"
    if len(off) > 1 and not same:
        words += "; also look at " + ", ".join(f"{other.partition(':')[0]} ({_number(d)})" for other, d in off[1:])
    return Finding(kind, words, evidence, result=name)


def _stacked(terms: Mapping[str, Any], pairs: Pairs, name: str) -> tuple[Array, Array]:
    rows, answers = [], []
    for example, found, right in pairs:
        shape = right[name].shape
        values = [
            right[name] if term is None else np.asarray(term(*example.args), np.float64) for term in terms.values()
        ]
        rows.append(np.stack([np.broadcast_to(value, shape).ravel() for value in values], axis=-1))
        answers.append(found[name].ravel())
    return np.concatenate(rows).astype(np.float64), np.concatenate(answers).astype(np.float64)


def _solve(columns: Array, answer: Array, error: float = np.inf) -> Array | None:
    """Return the coefficients of the columns if they give the answer exactly and no others do."""
    usable = np.isfinite(columns).all(axis=-1) & np.isfinite(answer)
    columns, answer = columns[usable], answer[usable]
    if len(answer) < columns.shape[1] + 1 or not usable.all():
        return None
    size = np.abs(columns).max(axis=0)
    if not size.all():
        return None
    solution, _, rank, _ = np.linalg.lstsq(columns / size, answer, rcond=1e-9)
    left = np.abs(columns / size @ solution - answer).max()
    if rank < columns.shape[1] or left > min(EXACT * max(np.abs(answer).max(), 1e-3), EXPLAINED * error):
        return None
    return np.asarray(solution / size)


def _number(c: float) -> str:
    for value, text in SIMPLE.items():
        if abs(c - value) < ROUND:
            return text
    return f"{c:.3g}".replace("-", "−")


def scaled(exercise: Exercise, pairs: Pairs, name: str) -> Finding | None:
    """Find coefficients that follow the sizes of the axes: a mean for a sum, a forgotten scale."""
    if pairs[0][2][name].dtype.kind != "f":
        return None
    terms = _terms_of(exercise, name)
    solved, sizes = [], []
    for pair in pairs:
        columns, answer = _stacked(terms, [pair], name)
        if (one := _solve(columns, answer, error_of(pair, name) or np.inf)) is not None:
            solved.append(one)
            sizes.append(pair[0].sizes)
    if len(solved) < 3:
        return None
    texts = [_monomial([one[at] for one in solved], sizes) for at in range(len(terms))]
    if None in texts and len(solved) == len(pairs) and all(np.ptp(one) < ROUND for one in solved):
        factors = ", ".join(_number(float(one[0])) for one in solved)
        words = f"all of {name} has a factor that differs from input to input: {factors}"
        return Finding("wrong factor", words, result=name)
    if None in texts:
        return None
    off = [(label, text) for label, text in zip(terms, texts, strict=True) if text is not None and text != "1"]
    if not off:
        return None
    said = [(formula := label.partition(": ")[2], _misscaled(formula, text)) for label, text in off]
    is_all = len(off) == len(terms) > 1 and len({how for _, how in said}) == 1
    places = f"all of it {said[0][1]}" if is_all else "; ".join(f"{formula} {how}" for formula, how in said)
    kind = "wrong sign" if off[0][1] == "−1" else "missing term" if off[0][1] == "0" else "wrong factor"
    return Finding(kind, f"{name}: {places}", f"over {len(solved)} random inputs of different shapes", result=name)


def _misscaled(formula: str, factor: str) -> str:
    """Say what a wrong factor does to a term."""
    if factor in ("0", "−1"):
        return "is missing" if factor == "0" else "has the wrong sign"
    more, _, less = factor.partition(" · 1/")
    if f"/ {more}" in formula and factor in (more, f"{more} · 1/{less}"):
        return f"is divided by {less} instead of {more}" if less else f"is not divided by {more}"
    return f"is {factor} times what it must be"


def _monomial(values: list[float], sizes: list[dict[str, int]]) -> str | None:
    """Write numbers as a product of powers of the sizes, such as 1/√C; None if they are none."""
    for value, text in SIMPLE.items():
        if all(abs(one - value) < ROUND for one in values):
            return text
    names = sorted(set.intersection(*({*one} for one in sizes)))
    powers = {0.5: "√{}", 1: "{}", 2: "{}²", -0.5: "1/√{}", -1: "1/{}", -2: "1/{}²"}
    for count in (1, 2):
        for which in itertools.combinations(names, count):
            for exponents in itertools.product(powers, repeat=count):
                product = [math.prod(s[n] ** e for n, e in zip(which, exponents, strict=True)) for s in sizes]
                if len({*product}) < 2:
                    continue
                for front in (1.0, -1.0, 2.0, 0.5):
                    if np.allclose(values, front * np.array(product), rtol=ROUND, atol=0):
                        text = " · ".join(powers[e].format(n) for n, e in zip(which, exponents, strict=True))
                        return text if front == 1 else f"{_number(front)} · {text}"
    return None


def pooled(exercise: Exercise, pairs: Pairs, name: str) -> Finding | None:
    """Look for an extra term, or a factor, among the arguments and the other results."""
    if pairs[0][2][name].dtype.kind != "f":
        return None
    for label, values in _pool(exercise, pairs, name):
        if finding := _scaled_term(exercise, pairs, name, label, values):
            return finding
        columns = np.concatenate([v.ravel() for v in values])[:, None]
        plain = _solve(columns, np.concatenate([found[name].ravel() for _, found, _ in pairs]))
        if plain is not None and label not in ("1", name):
            words = f"{name} is nothing but {_number(float(plain[0]))} · {label}: all else is missing"
            return Finding("missing term", words, f"over {len(pairs)} random inputs", result=name)
        extra = [found[name] - right[name] for _, found, right in pairs]
        solved = _solve(columns, np.concatenate([e.ravel() for e in extra]))
        if solved is not None and abs(solved[0]) > ROUND:
            words = f"{name} has a term too many: {_number(float(solved[0]))} · {label}"
            return Finding("extra term", words, f"over {len(pairs)} random inputs", result=name)
        for power, text in ((1, f"× {label}"), (-1, f"÷ {label}"), (2, f"× {label}²"), (-2, f"÷ {label}²")):
            with np.errstate(all="ignore"):
                product = [right[name] * value**power for (_, _, right), value in zip(pairs, values, strict=True)]
            if label != "1" and all(explains(p, pair, name) for pair, p in zip(pairs, product, strict=True)):
                return Finding(
                    "wrong factor", f"{name} is multiplied once too often, or too seldom: {text}", result=name
                )
    return None


def _scaled_term(exercise: Exercise, pairs: Pairs, name: str, label: str, values: list[Array]) -> Finding | None:
    """Look for one term that is multiplied or divided by a quantity while all others are right."""
    terms = exercise.terms.get(name, {})
    for at, (term, formula) in enumerate(zip(terms.values(), terms, strict=True)):
        if len(terms) < 2 or label in ("1", name):
            return None
        own = [np.asarray(term(*example.args), np.float64) for example, _, _ in pairs]
        for power, how in ((-1, "lacks the factor"), (1, "has once too often the factor")):
            with np.errstate(all="ignore"):
                made = [r[name] + o * (v**power - 1) for (_, _, r), o, v in zip(pairs, own, values, strict=True)]
            if all(explains(value, pair, name) for value, pair in zip(made, pairs, strict=True)):
                words = f"{formula.partition(': ')[2]} ({formula.partition(':')[0]}) {how} {label}"
                return Finding("wrong factor", words, f"term {at + 1} of {name}, over {len(pairs)} inputs", result=name)
    return None


def _pool(exercise: Exercise, pairs: Pairs, name: str) -> Iterator[tuple[str, list[Array]]]:
    """Yield quantities that fit the result: arguments, results, the other results' own, and constants."""
    names = signature(exercise)
    yield "1", [np.ones(right[name].shape) for _, _, right in pairs]
    for at, label in enumerate(names):
        if label in names:
            yield from _fitting(label, [e.args[at] if at < len(e.args) else None for e, _, _ in pairs], pairs, name)
    for other in pairs[0][2]:
        yield from _fitting(other, [right[other] for _, _, right in pairs], pairs, name)


def _fitting(label: str, values: list[Any], pairs: Pairs, name: str) -> Iterator[tuple[str, list[Array]]]:
    made = []
    for value, (_, _, right) in zip(values, pairs, strict=True):
        if not isinstance(value, np.ndarray | float) or isinstance(value, bool):
            return
        try:
            made.append(np.broadcast_to(np.asarray(value, np.float64), right[name].shape))
        except ValueError:
            return
    yield label, made
