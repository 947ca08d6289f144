"""What formulas are made with: entries of arrays with their names, and the gradients that each step was handed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import Array
from ..formula import Formula, Index, Operand
from ..gradients import Gradients, undo_changes
from ..graph import Graph, Step
from ..names import Address


class OperandReader:
    """The steps of a run, and the numbers of its arrays with where they stand.

    made   how a step made an entry: what a number without a name is made of stands in its place
    """

    def __init__(self, graph: Graph, made: Made) -> None:
        self.graph, self.made = graph, made

    def value(self, symbol: str, array: Array, letters: str, index: Index) -> Operand:
        """Return entries of an array, written as symbol[letters]."""
        name, place = self.graph.found(array, index)
        if name is None and np.ndim(array[index]) == 0:
            formula = self.made(self, array, index)
            return Operand(written(symbol, letters), array[index] if formula is None else formula)
        return Operand(written(symbol, letters), array[index], name, place)


Made = Callable[[OperandReader, Array, Index], Formula | None]


class GradientReader(OperandReader):
    """Besides values, the gradient that each step was handed.

    sent_to   what all readers of an array send back to an entry, for gradients without a name
    """

    def __init__(self, graph: Graph, made: Made, found: Gradients, sent_to: Callable[[Array, Index], Formula]) -> None:
        super().__init__(graph, made)
        self.found, self.sent_to = found, sent_to

    def array(self, array: Array) -> Array | None:
        """Return the gradient of an array as the step that made it was handed it, None where there is none."""
        address = self.graph.address(array)
        place = None if address is None else self.found.handed(address)
        return None if place is None else place()

    def before(self, array: Array) -> Array:
        """Return an array as it was computed, before it was changed."""
        address = self.graph.address(array)
        return array if address is None else (self.graph.run.originals or {}).get(address, array)

    def is_changed(self, array: Array) -> bool:
        """Tell whether an array is not what was computed there."""
        return self.before(array) is not array

    def undone(self, symbol: str, array: Array, letters: str, index: Index) -> Operand:
        """Return the gradient that passes through the changes of an array, back to what was computed there."""
        address, run = self.graph.address(array), self.graph.run
        assert address is not None, "every statistic of a norm is on the tape"
        place = self.found.place(address)
        assert place is not None, "only statistics of norms are asked for, which have gradients"
        changes = [change for change in run.changes if run.addresses.get(change.name) == address]
        gradient = undo_changes(run, address, changes, place())
        return Operand(written(symbol, letters), gradient[index], self.graph.name(array), index, gradient=True)

    def said(self, step: Step, role: str) -> Array | None:
        """Return what the backward of a step, by its own word, sent back to one of the arrays that it read."""
        places = [place for place, array in enumerate(step.call.arguments) if array is step.inputs[role]]
        place = self.found.handed(Address(step.call.number, places[0])) if places else None
        return None if place is None else place()

    def gradient(self, symbol: str, array: Array, letters: str, index: Index) -> Operand:
        """Return entries of the gradient of an array, written as symbol[letters]."""
        name, place = self.graph.found_ahead(array, index)
        if name is None:
            name, place = self.graph.found(array, index)
        gradient = self.array(array)
        values = np.zeros(np.broadcast_shapes(*map(np.shape, index))) if gradient is None else gradient[index]
        inner = None if name is not None else lambda number: self.sent_to(array, _one(index, number))
        return Operand(written(symbol, letters), values, name, place, gradient=True, inner=inner)


def _one(index: Index, number: int) -> Index:
    """Return the index of one of several entries."""
    return tuple(part if np.ndim(part) == 0 else int(part[number]) for part in index)


# --- letters and indices ---------------------------------------------------------------------------------------------


def written(symbol: str, letters: str) -> str:
    """Write a symbol with its index."""
    return f"{symbol}[{','.join(letters)}]" if letters else symbol


def rows_of(array: Array) -> str:
    """Return the letters of all axes but the last."""
    return {2: "n", 3: "nt", 4: "nht"}.get(array.ndim, "")


def running(letters: str) -> str:
    """Return letters as the arguments of a sum."""
    return ", ".join(letters)


def along(size: int) -> Array:
    """Return the numbers of the entries along an axis."""
    return np.arange(size)


def every(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Return the indices of all entries of some axes, one after the other."""
    return tuple(part.reshape(-1) for part in np.indices(shape))


def broadcast_index(array: Array, index: Index) -> Index:
    """Return the index of an entry in an array that broadcasts to the one that the index is for."""
    own = index[len(index) - array.ndim :]
    return tuple(part if size > 1 else 0 for part, size in zip(own, array.shape, strict=True))


# --- operands of no array --------------------------------------------------------------------------------------------


def plain(symbol: str, number: Any) -> Operand:
    """Return a number that is read from no array."""
    return Operand(symbol, float(number))


def nothing(result: str, why: str, lines: str = "") -> Formula:
    """Return the formula of a zero."""
    return Formula(result, "nothing", {"nothing": plain(f"0, for {why}", 0)}, lines)


def kept(step: Step, index: Index, letters: str) -> Operand:
    """Return what dropout multiplies entries by: zero, or 1 / (1 − rate)."""
    keep = step.settings["keep"] if "keep" in step.settings else step.settings["saved"]
    factor = 1 / (1 - step.settings["rate"])
    return Operand(f"{written('keep', letters)}/(1 − rate)", np.where(keep[index], factor, 0.0))
