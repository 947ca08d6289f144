"""Where every named value of a run is made: which call returned it, or which call read it first.

A value has the dotted name it goes by in the record, such as blocks.0.attention.attend.weights. Besides, the name of a
layer is the name of what that layer returned:

    blocks.0.attention           what attention adds to the stream
    blocks.0.attention.query     the queries, before they are split into heads
    blocks.0                     the stream as it leaves the block
    logits                       what the model returned; vectors, where it has no head

and the weights of attention have what they are made from beside them: scores, and the mask of who may see whom.

What a call returned is changed for everybody who reads it. What was only put together in between, as the heads side by
side that the last matrix of attention reads, is changed where it is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError, did_you_mean
from .outline import Outline
from .watching import Call

RETURNED = -1
LOGITS, VECTORS, SCORES, MASK = "logits", "vectors", "scores", "mask"


class Address(NamedTuple):
    """A value among the calls of a run."""

    number: int  # of the call
    place: int | str  # which argument, by its number or its keyword; RETURNED: what the call returned


Addresses = dict[str, Address]


def find_addresses(calls: list[Call], record: Tree, output: str = LOGITS) -> Addresses:
    """Return the address of every value of a record, of what every layer returned, and of scores and masks."""
    made, read = find_makers(calls), find_readers(calls)
    parts: dict[int, str] = {}
    leaves: dict[str, Any] = {}
    _walk(record, "", parts, leaves)
    found: Addresses = {}
    for name, value in leaves.items():
        address = made.get(id(value)) or read.get(id(value))
        if address is not None and ".rotation." not in name:  # tables of angles: constants, read by all blocks
            found[name] = address
    names = {id(value): name for name, value in leaves.items()}
    for call in calls:
        y, *rest = call.outputs
        if call.is_method and rest and _is_real(y) and parts.get(id(rest[0])):
            found.setdefault(parts[id(rest[0])], made[id(y)])
        if call.name == "softmax" and call.parent is not None and call.parent.name == "attention" and id(y) in names:
            beside = names[id(y)].removesuffix("weights")
            found[beside + SCORES] = Address(call.number, 0)
            found[beside + MASK] = Address(call.number, MASK)
    found[output] = made[id(calls[0].outputs[0])]
    return found


def value_at(calls: list[Call], address: Address) -> Array:
    """Return the value at an address."""
    return value_in(calls[address.number], address.place)


def value_in(call: Call, place: int | str) -> Array:
    """Return the value at a place of a call; where its numbers were let go, its outline."""
    if isinstance(place, str):
        return whole_mask(call)
    return call.outputs[0] if place == RETURNED else call.arguments[place]


def whole_mask(call: Call) -> Array:
    """Return who may see whom in a softmax of attention, for every head: (..., H, T, S)."""
    shape = call.arguments[0].shape
    mask = call.settings.get(MASK)
    if isinstance(call.arguments[0], Outline):
        return Outline(shape, np.dtype(bool))
    return np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)


def check_name(name: str, known: Any) -> None:
    """Refuse the name of a value that a run does not have."""
    if name not in known:
        raise ConfigError(f"there is no value {name!r} in this run", hint=did_you_mean(name, known))


def find_makers(calls: list[Call]) -> dict[int, Address]:
    """Return for each array the first call that returned it, the innermost."""
    made: dict[int, Address] = {}
    for call in sorted(calls, key=lambda one: (one.end, -one.number)):
        if _is_real(call.outputs[0]):
            made.setdefault(id(call.outputs[0]), Address(call.number, RETURNED))
    return made


def find_readers(calls: list[Call]) -> dict[int, Address]:
    """Return for each array the first call that read it, the outermost."""
    read: dict[int, Address] = {}
    for call in calls:
        for place, value in enumerate(call.arguments):
            if _is_real(value):
                read.setdefault(id(value), Address(call.number, place))
    return read


def _walk(tree: Tree, name: str, parts: dict[int, str], leaves: dict[str, Any]) -> None:
    """Note the names of all parts of a record, and of the arrays of real numbers in it."""
    if isinstance(tree, dict):
        inner: Any = tree.items()
    elif isinstance(tree, list | tuple):
        inner = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    else:
        if _is_real(tree):
            leaves[name] = tree
        return
    parts.setdefault(id(tree), name)
    for own, part in inner:
        _walk(part, f"{name}.{own}" if name else str(own), parts, leaves)


def _is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray | Outline) and value.dtype.kind in "fc"
