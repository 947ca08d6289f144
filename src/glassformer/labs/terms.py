"""A wrong result as a sum of known terms: which are missing, turned or scaled, by least squares over random inputs."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.arrays import Array
from .answers import Finding
from .draw import Example
from .lab import Exercise

EXACT = 1e-6
"""A fit or a match counts if what remains is below this, relative to the largest number in play."""
EXPLAINED = 1e-3
"""A mistake is believed if it leaves less than this part of the error unexplained."""
ROUND = 1e-4
"""Coefficients are read as a simple number if they are this near to one."""
SIMPLE = {0.0: "0", 1.0: "1", -1.0: "−1", 0.5: "½", 2.0: "2", -0.5: "−½", -2.0: "−2", 3.0: "3", 0.25: "¼", 4.0: "4"}
POWERS = {0.5: "√{}", 1: "{}", 2: "{}²", -0.5: "1/√{}", -1: "1/{}", -2: "1/{}²"}

EMPTY = np.zeros(0)

Pairs = list[tuple[Example, dict[str, Array], dict[str, Array]]]
"""Of several examples: the arguments, the learner's results and the right ones."""
Terms = Mapping[str, list[Array]]
"""The values of each term, one for each example."""


def error_of(pair: Any, name: str) -> float:
    """Return how far a result is off, where both are finite."""
    _, found, right = pair
    error = np.abs(found[name].astype(np.float64) - right[name].astype(np.float64))
    return float(error[np.isfinite(error)].max(initial=0.0))


def unexplained(pair: Any, name: str) -> float:
    """Return how far a changed solution may be from the learner's result: one nearly as good explains nothing."""
    right = pair[2][name]
    size = float(np.abs(right[np.isfinite(right)]).max(initial=0.0)) or 1.0
    return max(EXPLAINED * error_of(pair, name), 1e-9 * size)


def fitted(exercise: Exercise, pairs: Pairs, name: str) -> Finding | None:
    """Write the result as a sum of the derivation's terms; read what is missing, turned or scaled.

    A coefficient is one number for all inputs, or a product of powers of their sizes: a mean for a sum, a lost scale.
    """
    if pairs[0][2][name].dtype.kind != "f":
        return None
    terms = _terms_of(exercise, pairs, name)
    whole = _solve(terms, pairs, name)
    if whole is not None and len(whole):
        texts: list[str | None] = [_number(float(c)) for c in whole]
        usable = []
    else:
        each = [(_solve(terms, [pair], name, at), pair[0].sizes) for at, pair in enumerate(pairs)]
        usable = [(one, sizes) for one, sizes in each if one is not None and len(one)]
        if any(one is None for one, _ in each) or len(usable) < 3:
            return None
        texts = [_monomial([one[at] for one, _ in usable], [sizes for _, sizes in usable]) for at in range(len(terms))]
    if None in texts and len(usable) == len(pairs) and all(np.ptp(one) < ROUND for one, _ in usable):
        factors = ", ".join(_number(float(one[0])) for one, _ in usable)
        return Finding("wrong factor", f"all of {name} has a factor that differs from input to input: {factors}")
    off = [(label, text) for label, text in zip(terms, texts, strict=True) if text is not None and text != "1"]
    if None in texts or not off:
        return None
    sum_ = " + ".join(f"{text}·[{label.partition(':')[0]}]" for label, text in zip(terms, texts, strict=True))
    return _read(name, off, len(terms), f"over {len(pairs)} random inputs, {name} = {sum_}, with nothing left over")


def is_plain(finding: Finding) -> bool:
    """Return whether the coefficients of a fit are simple ones, or follow the sizes, and are no accident."""
    if "in another order" in finding.words:  # which many mistakes bring about
        return False
    return "instead of 1" not in finding.words or any(f"factor {text} " in finding.words for text in SIMPLE.values())


def _terms_of(exercise: Exercise, pairs: Pairs, name: str) -> Terms:
    """Return the terms of a result; one that has none is a term itself."""
    known = exercise.terms.get(name)
    if not known:
        return {f"{name}: {exercise.derivation.get(name, name)}": [right[name] for _, _, right in pairs]}
    made = {label: [np.asarray(term(*e.args), np.float64) for e, _, _ in pairs] for label, term in known.items()}
    return {
        label: [np.broadcast_to(v, p[2][name].shape) for v, p in zip(values, pairs, strict=True)]
        for label, values in made.items()
    }


def _solve(terms: Terms, pairs: Pairs, name: str, at: int | None = None) -> Array | None:
    """Return the coefficients of the terms if they give the answer exactly; none where several would."""
    chosen = slice(None) if at is None else slice(at, at + 1)
    columns = np.stack([np.concatenate([v.ravel() for v in values[chosen]]) for values in terms.values()], axis=-1)
    answer = np.concatenate([found[name].ravel() for _, found, _ in pairs]).astype(np.float64)
    size = np.abs(columns).max(axis=0, initial=0.0)
    if len(answer) <= len(terms) or not size.all():
        return EMPTY
    if not np.isfinite(columns).all() or not np.isfinite(answer).all():
        return None
    solution, _, rank, _ = np.linalg.lstsq(columns / size, answer, rcond=1e-9)
    if rank < len(terms):
        return EMPTY
    left = np.abs(columns / size @ solution - answer).max()
    error = max(error_of(pair, name) for pair in pairs) or np.inf
    if left > min(EXACT * max(np.abs(answer).max(), 1e-3), EXPLAINED * error):
        return None
    return np.asarray(solution / size)


def _read(name: str, off: list[tuple[str, str]], count: int, evidence: str) -> Finding:
    """Return in words what the coefficients mean."""
    (label, text), rest = off[0], off[1:]
    what, _, formula = label.partition(": ")
    is_all = count == 1 or (len(off) == count and all(other == text for _, other in rest))
    place = f"all of {name}" if is_all else f"the term {formula} ({what})"
    if text == "0":
        kind, words = "missing term", f"{name} is zero everywhere" if is_all else f"{name} lacks {place}"
    elif text == "−1":
        kind, words = "wrong sign", f"{place} has the wrong sign"
    else:
        kind, words = "wrong factor", f"{place} {_misscaled(formula, text)}"
    if rest and not is_all:
        words += "; also look at " + ", ".join(f"{other.partition(':')[0]} ({d})" for other, d in rest)
    return Finding(kind, words, evidence, result=name)


def _misscaled(formula: str, factor: str) -> str:
    """Return in words what a wrong factor does to a term."""
    more, _, less = factor.partition(" · 1/")
    if f"/ {more}" in formula and factor in (more, f"{more} · 1/{less}"):
        return f"is divided by {less} instead of {more}" if less else f"is not divided by {more}"
    return f"has the factor {factor} instead of 1"


def _number(c: float) -> str:
    return next((text for value, text in SIMPLE.items() if abs(c - value) < ROUND), f"{c:.3g}".replace("-", "−"))


def _monomial(values: list[float], sizes: list[dict[str, int]]) -> str | None:
    """Write numbers as a product of powers of the sizes, such as 1/√C; None if they are none."""
    if np.ptp(values) < ROUND:
        return _number(values[0])
    names = sorted(set.intersection(*({*one} for one in sizes)))
    for count in (1, 2):
        for which in itertools.combinations(names, count):
            for exponents in itertools.product(POWERS, repeat=count):
                product = [math.prod(s[n] ** e for n, e in zip(which, exponents, strict=True)) for s in sizes]
                for front in (1.0, -1.0, 2.0, 0.5):
                    if len({*product}) > 1 and np.allclose(values, front * np.array(product), rtol=ROUND, atol=0):
                        text = " · ".join(POWERS[e].format(n) for n, e in zip(which, exponents, strict=True))
                        return text if front == 1 else f"{_number(front)} · {text}"
    return None
