"""Formulas that can be read and computed: one line of arithmetic, with the numbers it is about.

    made = Formula("y[n,t,j]", "sum(x * w, k) + b", {"x": …, "w": …, "b": …})
    made.text        y[n,t,j] = Σ_k x[n,t,k] · w[k,j] + b[j]
    made.filled      0.31 = 0.52 · 1.3 + 0.4 · (−0.2) + … + 126 more + 0.01
    made.number()    0.3099…, from the numbers alone

The line is the only source of all three, so what is read is what is computed. It is Python's arithmetic with a few
functions; `sum`, `mean` and `max` run over the letters that follow, along operands that hold several numbers.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array

SHOWN = 3
"""How many terms of a long sum are written out."""

Index = tuple[Any, ...]
"""The place of an entry in an array; of several, arrays of numbers that run together where the entries differ."""


@dataclass(frozen=True)
class Link:
    """One entry of a named array, or of its gradient."""

    name: str
    index: tuple[int, ...]
    gradient: bool = False


@dataclass(frozen=True)
class Part:
    """A number in a term, and where it was read; one without a name has links to what it was made from."""

    text: str
    value: float
    name: str | None
    index: tuple[int, ...]
    gradient: bool
    links: tuple[Link, ...] = ()


class Term(NamedTuple):
    """One term of a formula: a summand of its sum, or the number that one reader sends back."""

    label: str
    value: float
    parts: list[Part]


@dataclass(frozen=True, eq=False)
class Operand:
    """What a formula reads: a number, several along an axis, or another formula.

    text       how it is written, x[n,t,k]; letters in brackets stand for the parts of the index
    name       of the array that it is read from, None for a number without a name
    gradient   whether it is the gradient of that array
    inner      how each of several numbers without a name was made, where that is known
    """

    text: str
    values: Any
    name: str | None = None
    index: Index = ()
    gradient: bool = False
    inner: Callable[[int], Formula] | None = None

    def number(self) -> Any:
        """Return the numbers in double precision, those of a formula computed."""
        if isinstance(self.values, Formula):
            return self.values.number()
        return np.asarray(self.values, dtype=np.float64)[()]

    def part(self, place: int) -> Part:
        """Return one of the numbers and where it stands."""
        if isinstance(self.values, Formula):
            value = self.values.number()
        else:
            value = float(self.values if np.ndim(self.values) == 0 else self.values[place])
        if self.name is not None:
            return Part(self.text, value, self.name, self._entry(place), self.gradient)
        return Part(self.text, value, None, (), self.gradient, tuple(self._links(place)))

    def links(self) -> Iterator[Link]:
        """Return all entries that it was read from."""
        for place in range(1 if isinstance(self.values, Formula) else np.size(self.values)):
            yield from self._links(place)

    def link_count(self) -> int:
        """Return how many there are."""
        if isinstance(self.values, Formula):
            return self.values.link_count()
        each = 1 if self.name is not None else self.inner(0).link_count() if self.inner and np.size(self.values) else 0
        return each * int(np.size(self.values))

    def _links(self, place: int) -> Iterator[Link]:
        if isinstance(self.values, Formula):
            yield from self.values.links()
        elif self.name is not None:
            yield Link(self.name, self._entry(place), self.gradient)
        elif self.inner is not None:
            yield from self.inner(place).links()

    def _entry(self, place: int) -> tuple[int, ...]:
        return tuple(int(part) if np.ndim(part) == 0 else int(part[place]) for part in self.index)


@dataclass(frozen=True, eq=False)
class Formula:
    """How one number was computed from others.

    result       what is computed, y[n,t,j]
    expression   the line itself
    operands     the numbers by the names they have in it
    lines        a piece of the line of source that computes it
    also         entries that decided which numbers were read, such as a token
    """

    result: str
    expression: str
    operands: dict[str, Operand] = field(default_factory=dict)
    lines: str = ""
    also: tuple[Link, ...] = ()

    def number(self) -> float:
        """Compute the line."""
        return float(_computed(_parsed(self.expression), self.values))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The numbers by the names they have in the line."""
        return {name: operand.number() for name, operand in self.operands.items()}

    @property
    def text(self) -> str:
        """The line with its letters."""
        return f"{self.result} = {_written(_parsed(self.expression), self, None, False)}"

    @property
    def filled(self) -> str:
        """The line with its numbers, of long sums the largest terms."""
        return f"{shown(self.number())} = {_written(_parsed(self.expression), self, None, True)}"

    @property
    def combine(self) -> str:
        """How the terms make the number: sum, product, or expression."""
        top = _parsed(self.expression)
        if isinstance(top, ast.BinOp) and isinstance(top.op, ast.Mult) and not _runs(top):
            return "product"
        plain = all(_is_call(node, "sum") or not _runs(node) for _, node in _addends(top))
        return "sum" if plain else "expression"

    @property
    def size(self) -> int:
        """How many terms there are."""
        return sum(values.size for values, *_ in self._groups)

    def total(self) -> float:
        """Return the sum of all terms."""
        return float(sum(np.sum(values) for values, *_ in self._groups))

    def largest(self) -> float:
        """Return the size of the largest term."""
        return float(max((np.max(np.abs(values), initial=0.0) for values, *_ in self._groups), default=0.0))

    def terms(self, most: int | None = None) -> list[Term]:
        """Return the terms: of a sum its summands, of a product its factors, else those of the sums inside.

        If there are more than `most`, only those that are largest.
        """
        groups = self._groups
        values = np.concatenate([values for values, *_ in groups])
        ends = np.cumsum([own.size for own, *_ in groups])
        order = np.arange(values.size)
        if most is not None and values.size > most:
            order = np.argsort(-np.abs(values), kind="stable")[:most]
        found = []
        for one in order:
            number = int(np.searchsorted(ends, one, side="right"))
            found.append(self._term(*groups[number], int(one - ends[number] + groups[number][0].size)))
        return found

    def links(self) -> Iterator[Link]:
        """Return every entry that was read, once."""
        seen = dict.fromkeys(link for operand in self.operands.values() for link in operand.links())
        yield from dict.fromkeys((*seen, *self.also))

    def link_count(self) -> int:
        """Return how many entries were read, counted as often as they stand there."""
        return len(self.also) + sum(operand.link_count() for operand in self.operands.values())

    @cached_property
    def _groups(self) -> list[tuple[Array, Any, list[str]]]:
        """Return the terms, sum by sum: their values, what is summed, and the letters that run."""
        top = _parsed(self.expression)
        if self.combine == "product":
            nodes = [(1, node) for node in _factors(top)]
        elif self.combine == "sum":
            nodes = _addends(top)
        else:
            nodes = [(1, node) for node in ast.walk(top) if _is_call(node, "sum", "mean")]
        found = []
        for sign, node in nodes:
            inner, letters = (node.args[0], [one.id for one in node.args[1:]]) if _runs(node) else (node, [])
            found.append((np.atleast_1d(sign * _computed(inner, self.values)), inner, letters))
        return found

    def _term(self, values: Array, node: Any, letters: list[str], place: int) -> Term:
        operands = self._operands(node)
        label = ", ".join(f"{letter} = {self._running(operands, letter, place)}" for letter in letters)
        label = label or _written(node, self, None, False)
        return Term(label, float(values[place]), [one.part(place) for one in operands])

    def _operands(self, node: Any) -> list[Operand]:
        """Return the operands that stand in a part of the line."""
        return [self.operands[name] for name in _names(node) if name in self.operands]

    @staticmethod
    def _running(operands: list[Operand], letter: str, place: int) -> int:
        """Return which number a letter stands for in one term of a sum."""
        for operand in operands:
            letters = operand.text.partition("[")[2].rstrip("]").split(",")
            for own, part in zip(letters, operand.index, strict=False):
                if own == letter and np.ndim(part):
                    return int(part[place])
        return place


# --- the language ----------------------------------------------------------------------------------------------------


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "larger": max,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sigma": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    "Phi": _normal,
    "positive": lambda x: float(x > 0),
}
SIGNS: dict[str, str] = {"sqrt": "√", "sigma": "σ", "Phi": "Φ", "larger": "max"}
RUNNING = ("sum", "mean", "max")
OPERATORS: dict[type, tuple[str, int, Callable[[Any, Any], Any]]] = {
    ast.Add: (" + ", 1, lambda a, b: a + b),
    ast.Sub: (" − ", 1, lambda a, b: a - b),
    ast.Mult: (" · ", 2, lambda a, b: a * b),
    ast.Div: (" / ", 2, lambda a, b: a / b),
}
POWERS = {2: "²", 3: "³"}


@cache
def _parsed(expression: str) -> Any:
    return ast.parse(expression, mode="eval").body


def _computed(node: Any, values: dict[str, Any]) -> Any:
    """Compute a part of a line."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return math.pi if node.id == "pi" else values[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_computed(node.operand, values)
    if isinstance(node, ast.Call):
        name = _function(node)
        arguments = node.args[:1] if name in RUNNING else node.args
        return FUNCTIONS[name](*(_computed(one, values) for one in arguments))
    if isinstance(node.op, ast.Pow):
        return _computed(node.left, values) ** node.right.value
    return OPERATORS[type(node.op)][2](_computed(node.left, values), _computed(node.right, values))


def _is_call(node: Any, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _function(node: Any) -> str:
    return str(node.func.id)


@cache
def _names(node: Any) -> list[str]:
    return list(dict.fromkeys(one.id for one in ast.walk(node) if isinstance(one, ast.Name)))


@cache
def _runs(node: Any) -> bool:
    """Tell whether there is a sum in a part of a line."""
    return any(_is_call(one, *RUNNING) for one in ast.walk(node))


def _addends(node: Any, sign: int = 1) -> list[tuple[int, Any]]:
    """Take a sum apart, each term with its sign."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        behind = -sign if isinstance(node.op, ast.Sub) else sign
        return [*_addends(node.left, sign), *_addends(node.right, behind)]
    if isinstance(node, ast.UnaryOp):
        return _addends(node.operand, -sign)
    return [(sign, node)]


def _factors(node: Any) -> list[Any]:
    """Take a product apart."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


# --- how it is written -----------------------------------------------------------------------------------------------


def shown(number: float) -> str:
    """Write a number with four digits."""
    return f"{number + 0.0:.4g}".replace("-", "−")


def _written(node: Any, formula: Formula, place: int | None, filled: bool, above: int = 0) -> str:
    """Write a part of a line, in letters or with its numbers; `above` is how strongly what is around it binds."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return _name_written(node.id, formula, place, filled, above)
    if isinstance(node, ast.UnaryOp):
        return f"−{_written(node.operand, formula, place, filled, 2)}"
    if isinstance(node, ast.Call):
        return _call_written(node, formula, place, filled, above)
    if isinstance(node.op, ast.Pow):
        return _written(node.left, formula, place, filled, 3) + POWERS[node.right.value]
    sign, strength, _ = OPERATORS[type(node.op)]
    loose = strength if strength > 1 else 0  # a sum may begin with a minus
    tight = strength + isinstance(node.op, ast.Sub | ast.Div)
    sides = (_written(node.left, formula, place, filled, loose), _written(node.right, formula, place, filled, tight))
    text = sign.join(sides)
    return f"({text})" if strength < above else text


def _name_written(name: str, formula: Formula, place: int | None, filled: bool, above: int) -> str:
    if name not in formula.operands:
        return "π" if name == "pi" else name
    if not filled:
        return formula.operands[name].text
    value = formula.values[name]
    if np.ndim(value) and place is None:
        return formula.operands[name].text
    number = float(value if np.ndim(value) == 0 else value[place])
    return f"({shown(number)})" if number < 0 and above else shown(number)


def _call_written(node: Any, formula: Formula, place: int | None, filled: bool, above: int) -> str:
    name = node.func.id
    if name == "positive":
        return f"[{_written(node.args[0], formula, place, filled)} > 0]"
    if name not in RUNNING:
        return f"{SIGNS.get(name, name)}({', '.join(_written(one, formula, place, filled) for one in node.args)})"
    inner, letters = node.args[0], ",".join(one.id for one in node.args[1:])
    if not filled:
        strength = 2 if name == "sum" else 0
        text = _written(inner, formula, None, False, strength)
        text = f"Σ_{letters} {text}" if name == "sum" else f"{name}_{letters}({text})"
        return f"({text})" if name == "sum" and above >= 2 else text
    values = np.atleast_1d(_computed(inner, formula.values))
    if name == "max":
        return shown(float(np.max(values)))
    text = _terms_written(inner, formula, values)
    if name == "mean":
        return f"({text}) / {values.size}"
    return f"({text})" if above > 1 and values.size > 1 else text


def _terms_written(inner: Any, formula: Formula, values: Any) -> str:
    """Write the largest terms of a sum, and how many there are besides."""
    if values.size == 0:
        return "0"
    largest = np.argsort(-np.abs(values), kind="stable")[:SHOWN]
    text = " + ".join(_written(inner, formula, int(place), True, 1) for place in largest)
    return text if values.size <= SHOWN else f"{text} + … + {values.size - SHOWN} more"
