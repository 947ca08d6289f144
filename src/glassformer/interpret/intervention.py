"""Interventions: changed values in the place of those that calls read and return."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..arrays import Array, Tree
from ..tree import flatten, tree_map
from .changes import Change
from .names import MASK, RETURNED, Address, full_mask
from .tracing import Call

ALL = slice(None)

Placed = dict[Address, list[tuple[slice, Change]]]
"""Changes by the address of what they change, each with the examples that it is about."""


@dataclass(frozen=True)
class Intervention:
    """Changes the calls of a run.

    originals   what was there before, by its address
    no_effect   the changes that altered nothing
    """

    changes: Placed
    heads: int
    originals: dict[Address, Array] = field(default_factory=dict)
    no_effect: list[Change] = field(default_factory=list)

    def before(self, call: Call) -> None:
        """Change what a call reads."""
        if Address(call.number, MASK) in self.changes:
            call.settings = {**call.settings, MASK: self._changed(Address(call.number, MASK), full_mask(call))}
        for place, value in enumerate(call.arguments):
            if Address(call.number, place) in self.changes:
                # Scores that the mask hides have no effect.
                seen = full_mask(call) if call.name == "softmax" and place == 0 else None
                value = self._changed(Address(call.number, place), value, seen)
                call.arguments = (*call.arguments[:place], value, *call.arguments[place + 1 :])

    def after(self, call: Call) -> None:
        """Change what a call returned. An op's record stays, for its own backward; a layer's holds what it returned."""
        address = Address(call.number, RETURNED)
        if address in self.changes:
            y, *rest = call.outputs
            value = self._changed(address, y)
            if call.is_method:
                rest = [exchanged(part, y, value) for part in rest]
            call.result = (value, *rest) if isinstance(call.result, tuple) else value

    def _changed(self, address: Address, value: Array, seen: Array | None = None) -> Array:
        self.originals[address] = value
        for rows, change in self.changes[address]:
            changed = change.apply(value[rows], self.heads)
            same = changed == value[rows]
            if np.all(same if seen is None else same[seen[rows]]):
                self.no_effect.append(change)
            value = np.array(value, dtype=changed.dtype)  # a complex step makes a value complex
            value[rows] = changed
        return value


def exchanged(tree: Tree, old: Array, new: Array) -> Tree:
    """Return a tree with another array in the place of one; the tree itself if that is not in it."""
    if not any(leaf is old for leaf in flatten(tree).values()):
        return tree
    return tree_map(lambda leaf: new if leaf is old else leaf, tree)
