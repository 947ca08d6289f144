"""The names of values: dotted paths of the record, of the parameters, and of what each layer returned.

    blocks.0.attention.attend.weights   an array of the record
    blocks.0.attention.query            what the op of a record, or of a parameter, returned
    blocks.0.attention, blocks.0        what a layer returned: the last of its ops
    blocks.0.attention.attend.scores    what the softmax of attention read, and its mask
    blocks.0.attention.query.input      what one matrix or norm reads alone, where others read the same array

Every name stands for an address: a call on the tape, and what it returned or read.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError, did_you_mean
from ..layers.stack import RematInputs
from ..tree import named_leaves
from .tracing import Call, ShapeDtype
from .transformer_lens import our_name

RETURNED = -1
LOGITS, VECTORS, SCORES, MASK, INPUT = "logits", "vectors", "scores", "mask", ".input"
READERS = (".query", ".key", ".value", ".up", ".gate", "attention_norm", "feed_forward_norm")
"""How the owners of parameters end that may read the same array as others do."""


class Address(NamedTuple):
    """A value on the tape of a run."""

    number: int  # of the call
    place: int | str  # which argument, by its number or its keyword; RETURNED: what the call returned


Addresses = dict[str, Address]


def find_addresses(calls: list[Call], record: Tree, params: Tree, logits: Array, output: str = LOGITS) -> Addresses:
    """Return the address of every value of a record, of what every layer returned, and of scores and masks."""
    naming = _Naming(calls, record, params)
    return {**naming.addresses(), output: naming.places[id(logits)]}


class _Naming:
    """Finds the calls that the parts of a record are about."""

    def __init__(self, calls: list[Call], record: Tree, params: Tree) -> None:
        self.calls, self.record = calls, record
        self.places = find_places(calls)
        self.found: Addresses = {}
        self.leaves: dict[int, str] = {}
        self.by_record = {id(call.outputs[1]): call for call in calls if call.is_method and len(call.outputs) > 1}
        # Which ops kept an array, and which read a parameter.
        self.keepers: dict[int, list[Call]] = {}
        self.owners: dict[int, set[str]] = {}
        paths = {id(leaf): name.rpartition(".")[0] for name, leaf in named_leaves(params)}
        for call in calls:
            if not call.is_method:
                for part in ids_in(call.outputs[1:]):
                    self.keepers.setdefault(part, []).append(call)
                self.owners[call.number] = {paths[id(part)] for part in call.arguments if id(part) in paths}

    def addresses(self) -> Addresses:
        """Return all addresses."""
        for name, part in _children(self.record):
            self._name(name, part)
        for call in self.calls:
            y = call.outputs[0]
            inside = call.parent is not None and call.parent.name == "attention"
            if call.name == "softmax" and inside and id(y) in self.leaves:
                beside = self.leaves[id(y)].removesuffix("weights")
                self.found[beside + SCORES] = Address(call.number, 0)
                self.found[beside + MASK] = Address(call.number, MASK)
            for owner in self.owners.get(call.number, ()):
                if owner.endswith((".key", ".value")) and is_real(y):  # their record is that of the queries
                    self.found.setdefault(owner, self.places[id(y)])
                if owner.endswith(READERS) and is_real(call.arguments[0]):
                    self.found[owner + INPUT] = Address(call.number, 0)
        return self.found

    def _name(self, name: str, part: Any) -> Address | None:
        """Name a part of the record and everything in it; return the address of what its layer or op returned."""
        if part is None or isinstance(part, str | int | float) or name.endswith("extra_inputs"):
            return None
        if isinstance(part, RematInputs):  # the block's first call returned the record that its stack left out
            part = self.calls[self.by_record[id(part)].number + 1].outputs[1]
        op = self._op(name, part)
        is_array = hasattr(part, "dtype")
        if is_array and op is None:
            return self._leaf(name, part)
        parts = {"x": part} if is_array else dict(_children(part))  # an activation keeps what it read
        inner = {own: (self._leaf if op else self._name)(f"{name}.{own}", below) for own, below in parts.items()}
        maker = op or self.by_record.get(id(part))
        if maker is not None:
            own = self._returned(maker)
        elif "output" in inner and hasattr(parts["output"], "dtype"):
            own = inner["output"]
        else:
            last = [address for address in inner.values() if address is not None and address.place == RETURNED]
            own = max(last, key=lambda address: self.calls[address.number].end, default=None)
        if own is not None and not name.endswith(".attend"):  # its heads, side by side, are `output.x`
            self.found.setdefault(name, own)
        return own

    def _leaf(self, name: str, value: Any) -> Address | None:
        if not is_real(value) or ".rotation." in name:  # tables of angles: constants, read by all blocks
            return None
        self.leaves[id(value)] = name
        address = self.places.get(id(value))
        if address is not None:
            self.found[name] = address
        return None if name.rpartition(".")[2] != "output" else address

    def _op(self, name: str, part: Any) -> Call | None:
        """Return the op that a part of the record is the record of: the one that kept these arrays."""
        is_tree = isinstance(part, dict | list) or (
            isinstance(part, tuple) and any(isinstance(below, dict | list | tuple) for below in part)
        )
        kept = [] if is_tree or ".rotation" in name else ids_in((part,))
        if not kept or (hasattr(part, "dtype") and not is_real(part)):
            return None
        calls = [call for call in self.keepers.get(kept[0], []) if {*kept} <= {*ids_in(call.outputs[1:])}]
        calls = [call for call in calls if type(call.outputs[1]) is type(part)]
        calls = [call for call in calls if call.parent is None or call.parent.is_method]  # no softmax of attention
        own = [call for call in calls if name in self.owners[call.number]]
        return next(iter(own or calls), None)

    def _returned(self, call: Call) -> Address | None:
        y = call.outputs[0]
        return self.places[id(y)] if is_real(y) else None


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):
        return iter(part.items())
    if isinstance(part, list | tuple):
        return iter(zip(map(str, getattr(part, "_fields", range(len(part)))), part, strict=True))
    return iter(())


def ids_in(tree: Any) -> list[int]:
    """Return the identities of the arrays of a record, with their numbers or without."""
    return [id(leaf) for _, leaf in named_leaves(tree) if hasattr(leaf, "dtype")]


def value_at(call: Call, place: int | str) -> Array:
    """Return the value at a place of a call, or its shape and dtype where its numbers were freed."""
    if isinstance(place, str):
        return full_mask(call)
    return call.outputs[0] if place == RETURNED else call.arguments[place]


def full_mask(call: Call) -> Array:
    """Return which keys each query of a softmax in attention may see, for every head: (..., H, T, S)."""
    shape = call.arguments[0].shape
    mask = call.settings.get(MASK)
    if isinstance(call.arguments[0], ShapeDtype):
        return ShapeDtype(shape, np.dtype(bool))
    return np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)


def check_name(name: str, known: Any, what: str = "value") -> None:
    """Refuse the name of a value that a run does not have."""
    if name not in known:
        hint = our_name(str(name), known) or did_you_mean(str(name), known)
        raise ConfigError(f"there is no {what} {name!r} in this run", hint=hint)


def find_places(calls: list[Call]) -> dict[int, Address]:
    """Return the first call that returned an array, the innermost; for a given one, the first that read it."""
    places: dict[int, Address] = {}
    for call in reversed(calls):
        for place, value in reversed([*enumerate(call.arguments)]):
            if is_real(value):
                places[id(value)] = Address(call.number, place)
    for call in sorted(calls, key=lambda one: (-one.end, one.number)):
        y = call.outputs[0]
        if is_real(y) and not any(y is part for part in call.arguments):  # rather than handed back
            places[id(y)] = Address(call.number, RETURNED)
    return places


def is_real(value: Any) -> bool:
    """Tell an array of real numbers, with them or without."""
    return isinstance(value, np.ndarray | ShapeDtype) and value.dtype.kind in "fc"
