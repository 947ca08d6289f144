"""A line of the table with the numbers of a run: every letter becomes a number, or all numbers along an axis."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from .arithmetic import RUNNING, computed, is_call, key_of, operands_in, parsed
from .formula import Formula, Index, Link, Operand

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
    numbers = {**own, **_running(top, find, known), **known}
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


def _running(top: Any, find: Symbols, known: Letters) -> dict[str, Array]:
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
