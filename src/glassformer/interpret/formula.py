"""Formulas that can be read and computed: one line of arithmetic, with the numbers it is about.

    made = Formula("y[n,t,j]", "sum(x * w, k) + b", {"x": …, "w": …, "b": …})
    made.text        y[n,t,j] = Σ_k x[n,t,k] · w[k,j] + b[j]
    made.filled      0.31 = 0.52 · 1.3 + 0.4 · (−0.2) + … + 126 more + 0.01
    made.mathml      the same, typeset
    made.number()    0.3099…, from the numbers alone

The line is the only source of all three, so what is read is what is computed; `arithmetic.py` is its language.
`fill` reads the operands of a line from arrays: every letter becomes a number, or all numbers along an axis.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.format import digits
from .arithmetic import (
    RUNNING,
    SHOWN,
    TEXT,
    MathML,
    Text,
    Writer,
    addends,
    computed,
    equation,
    factors,
    is_call,
    key_of,
    operands_in,
    parsed,
    runs,
)

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
    """A number in a term, with a link to where it was read; without a name, to most of what it was made from."""

    text: str
    value: float
    links: tuple[Link, ...]


class Term(NamedTuple):
    """One term of a formula: a summand of its sum, or the number that one reader sends back."""

    label: str
    value: float
    parts: list[Part]


def links_of(terms: list[Term]) -> list[Link]:
    """Return the entries that some terms were made from, once."""
    return list(dict.fromkeys(link for term in terms for part in term.parts for link in part.links))


@dataclass(frozen=True, eq=False)
class Operand:
    """An operand of a formula: a number, or several along an axis.

    text       how it is written, x[n,t,k]
    name       of the array that it is read from, None for a number without a name
    gradient   whether it is the gradient of that array
    inner      how each of several numbers without a name was made, where that is known
    """

    text: str
    values: Any
    name: str | None = None
    index: Index = ()
    gradient: bool = False
    inner: Callable[[int], Formula | None] | None = None

    def part(self, place: int) -> Part:
        """Return one of the numbers and where it stands."""
        value = float(self.values if np.ndim(self.values) == 0 else self.values[place])
        inner = None if self.name is not None else self._inner(place)
        links = self._links(place) if inner is None else links_of(inner.terms(SHOWN))
        return Part(self.text, value, tuple(links))

    def links(self) -> Iterator[Link]:
        """Return all entries that it was read from."""
        for place in range(np.size(self.values)):
            yield from self._links(place)

    def _links(self, place: int) -> Iterator[Link]:
        if self.name is not None:
            entry = (int(part) if np.ndim(part) == 0 else int(part[place]) for part in self.index)
            yield Link(self.name, tuple(entry), self.gradient)
        elif (inner := self._inner(place)) is not None:
            yield from inner.links()

    def link_count(self) -> int:
        """Return how many there are."""
        size = int(np.size(self.values))
        if self.name is not None:
            return size
        inner = self._inner(0) if size else None
        return 0 if inner is None else size * inner.link_count()

    def scale(self) -> float:
        """Return the size of a number without a name, or of the terms that cancel in it."""
        inner = self._inner(0) if np.ndim(self.values) == 0 else None
        return 0.0 if inner is None else inner.scale()

    def _inner(self, place: int) -> Formula | None:
        return None if self.inner is None else self.inner(place)


@dataclass(frozen=True, eq=False)
class Formula:
    """The computation of one number from others.

    result       what is computed, y[n,t,j]
    expression   the line itself
    operands     the numbers by the names they have in it
    lines        a piece of the line of source that computes it
    also         entries that decided which numbers were read, such as a token
    letters      the numbers that the letters of a sum stand for, in each of its terms
    """

    result: str
    expression: str
    operands: dict[str, Operand] = field(default_factory=dict)
    lines: str = ""
    also: tuple[Link, ...] = ()
    letters: Mapping[str, Array] = field(default_factory=dict)

    def number(self) -> float:
        """Compute the line."""
        return float(computed(parsed(self.expression), self.values))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The numbers in double precision, by the names they have in the line."""
        return {name: np.asarray(one.values, dtype=np.float64)[()] for name, one in self.operands.items()}

    @property
    def text(self) -> str:
        """The line with its letters."""
        return f"{self.result} = {self._written(parsed(self.expression))}"

    @property
    def filled(self) -> str:
        """The line with its numbers, of long sums the largest terms."""
        return f"{digits(self.number())} = {self._written(parsed(self.expression), self.values)}"

    @property
    def mathml(self) -> str:
        """The line with its letters, typeset."""
        sides = [MathML().symbol(side) for side in self.result.split(" = ")]
        return equation(*sides, self._written(parsed(self.expression), script=MathML()))

    @property
    def filled_mathml(self) -> str:
        """The line with its numbers, typeset."""
        script = MathML()
        line = self._written(parsed(self.expression), self.values, script)
        return equation(script.number(digits(self.number())), line)

    def _written(self, node: Any, values: Mapping[str, Any] | None = None, script: Text = TEXT) -> str:
        return Writer({name: operand.text for name, operand in self.operands.items()}, values, script).write(node)

    @property
    def combine(self) -> str:
        """The way in which the terms make the number: sum, product, or expression."""
        top = parsed(self.expression)
        if isinstance(top, ast.BinOp) and isinstance(top.op, ast.Mult) and not runs(top):
            return "product"
        plain = all(is_call(node, "sum") or not runs(node) for _, node in addends(top))
        return "sum" if plain else "expression"

    @property
    def size(self) -> int:
        """The number of terms."""
        return sum(values.size for values, *_ in self._groups)

    def total(self) -> float:
        """Return the sum of all terms."""
        return float(sum(np.sum(values) for values, *_ in self._groups))

    def largest(self) -> float:
        """Return the size of the largest term."""
        return float(max((np.max(np.abs(values), initial=0.0) for values, *_ in self._groups), default=0.0))

    def scale(self) -> float:
        """Return the size of the number, or of the terms that cancel in it: rounding errors are small beside this."""
        inner = (operand.scale() for operand in self.operands.values())
        return max(abs(self.number()), 0.0 if self.combine == "product" else self.largest(), *inner)

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
        top = parsed(self.expression)
        if self.combine == "product":
            nodes = [(1, node) for node in factors(top)]
        elif self.combine == "sum":
            nodes = addends(top)
        else:
            nodes = [(1, node) for node in ast.walk(top) if is_call(node, "sum", "mean")]
        found = []
        for sign, node in nodes:
            inner, letters = (node.args[0], [one.id for one in node.args[1:]]) if runs(node) else (node, [])
            found.append((np.atleast_1d(sign * computed(inner, self.values)), inner, letters))
        return found

    def _term(self, values: Array, node: Any, letters: list[str], place: int) -> Term:
        numbers = {one: int(self.letters[one][place]) if one in self.letters else place for one in letters}
        label = ", ".join(f"{letter} = {number}" for letter, number in numbers.items()) or self._written(node)
        read = [self.operands[key] for one in operands_in(node) if (key := key_of(one)) in self.operands]
        return Term(label, float(values[place]), [one.part(place) for one in read])


# --- a line of the table with the numbers of a run --------------------------------------------------------------------

Letters = Mapping[str, Any]
"""The numbers that letters stand for; of letters that run together, an array each."""


class Symbol(NamedTuple):
    """An array that a formula reads, and what makes operands of its entries."""

    array: Array
    read: Callable[[str, Array, Index], Operand]


Symbols = Callable[[str], Any]
"""Returns the `Symbol` of a name in a formula, or a number, or an operand that needs no index."""


def fill(line: str, find: Symbols, index: Index, letters: Letters | None = None, source: str = "") -> Formula:
    """Return a formula with the numbers that make the entry at `index`; `letters` are those that are known already."""
    result, _, expression = line.partition(" = ")
    if expression.startswith("0, for"):
        return given(result, expression, 0.0, source)
    top, known = parsed(expression), letters or {}
    own = {one.id: part for one, part in zip(_parts(parsed(result)), index, strict=False) if isinstance(one, ast.Name)}
    numbers = {**own, **running(top, find, known), **known}
    also: list[Link] = []
    operands = {key_of(one): _read(one, find, numbers, also) for one in operands_in(top) if key_of(one) != "pi"}
    several = {letter: part for letter, part in numbers.items() if np.ndim(part)}
    return Formula(result, expression, operands, source, tuple(also), several)


def given(result: str, text: str, number: float, source: str = "") -> Formula:
    """Return the formula of a number that is computed from no others."""
    return Formula(result, "given", {"given": Operand(text, number)}, source)


def _parts(node: Any) -> list[Any]:
    """Return the parts of the index of an operand."""
    if isinstance(node, ast.Name):
        return []
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def running(top: Any, find: Symbols, known: Letters) -> dict[str, Array]:
    """Return all numbers that the letters of each sum take together."""
    found: dict[str, Array] = {}
    node: Any
    for node in ast.walk(top):
        letters = [one.id for one in node.args[1:]] if is_call(node, *RUNNING) else []
        if letters and letters[0] not in known:
            sizes = [_size(letter, node, find) for letter in letters]
            found |= dict(zip(letters, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    return found


def _size(letter: str, node: Any, find: Symbols) -> int:
    """Return the length of the axis that a letter runs along."""
    sizes = [1]
    for one in operands_in(node):
        if letter in map(key_of, _parts(one)):
            array = find(one.value.id).array
            axis = [key_of(part) for part in _parts(one)[-array.ndim :]].index(letter)
            sizes.append(array.shape[axis])
    return max(sizes)


def _read(node: Any, find: Symbols, numbers: Letters, also: list[Link]) -> Operand:
    """Return an operand; an array with fewer axes than its index broadcasts, the last axes of one with more are 1."""
    name = node.id if isinstance(node, ast.Name) else node.value.id
    symbol = find(name)
    if not isinstance(symbol, Symbol):
        return symbol if isinstance(symbol, Operand) else Operand(name, float(symbol))
    array = symbol.array
    parts = _parts(node)[-array.ndim :]
    places = [_place(part, find, numbers, also) for part in parts]
    index = [place if size > 1 else place * 0 for place, size in zip(places, array.shape, strict=False)]
    text = f"{name}[{','.join(map(key_of, parts))}]".replace("-", "−") if parts else name
    return symbol.read(text, array, (*index, *[0] * (array.ndim - len(parts))))


def _place(part: Any, find: Symbols, numbers: Letters, also: list[Link]) -> Any:
    """Return a part of an index; what is looked up for it, such as a token, is added to `also`."""
    looked_up = {}
    for one in operands_in(part):
        if isinstance(one, ast.Subscript):
            read = _read(one, find, numbers, also)
            looked_up[key_of(one)] = read.values
            if read.name is not None and np.ndim(read.values) == 0:
                also.extend(read.links())
    return computed(part, {**numbers, **looked_up})
