"""Which call of the backward pass undoes which call of the forward pass.

A backward is handed the record that its forward returned, so the two are found together by the arrays in it. Where a
record does not tell, as for a sum, or for two rotations by the same angles, the gradients do: what the backward of a
reader returned is handed to the backward of the op that made what it read.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from .names import ids_in
from .tracing import Call

Pairs = dict[int, Call]
"""The call of the backward pass by the number of the call of the forward pass that it undoes."""


def pairs(forward: list[Call], backward: list[Call]) -> Pairs:
    """Return for each call of the forward pass the one that undoes it, where there is one."""
    by_name: dict[str, list[Call]] = {}
    for call in forward:
        by_name.setdefault(call.name, []).append(call)
    found: Pairs = {}
    left: list[Call] = []
    for call in backward:
        name = forward_name(call.name)
        candidates = [] if name is None else by_name.get(name, [])
        if not candidates:
            continue
        best = _by_record(call, [one for one in candidates if one.number not in found])
        if len(best) == 1:
            found[best[0].number] = call
        else:
            left.append(call)
    return _by_flow(found, forward, left, by_name)


def _by_record(call: Call, candidates: list[Call]) -> list[Call]:
    """Return the calls that share most with the record that a backward was handed."""
    saved = record_of(call)
    if call.is_method:
        return [one for one in candidates if len(one.outputs) > 1 and one.outputs[1] is saved]
    mine = {*ids_in((saved,))}
    if not mine:
        return []
    alike = [len(mine & _kept(one)) for one in candidates]
    most = max(alike, default=0)
    return [one for one, count in zip(candidates, alike, strict=True) if count == most > 0]


def _kept(call: Call) -> set[int]:
    return {*ids_in((call.outputs[1:], call.outputs[0]))}


def _by_flow(found: Pairs, forward: list[Call], left: list[Call], by_name: dict[str, list[Call]]) -> Pairs:
    """Pair the calls that are left by the gradients that they hand to each other, until no more are found."""
    makers: dict[int, list[Call]] = {}
    readers: dict[int, list[tuple[Call, int]]] = {}
    for call in forward:
        makers.setdefault(id(call.outputs[0]), []).append(call)
        for place, array in enumerate(call.arguments):
            readers.setdefault(id(array), []).append((call, place))

    def fits(call: Call, one: Call) -> bool:
        """Tell whether a gradient leads from the backward of a reader to this one, or on to that of a maker."""
        dy = call.arguments[gradient_place(call)]
        for reader, place in readers.get(id(one.outputs[0]), ()):
            back = found.get(reader.number)
            if back is not None and gradient_of(back, reader, place) is dy:
                return True
        for place, array in enumerate(one.arguments):
            dx = gradient_of(call, one, place)
            for maker in makers.get(id(array), ()) if dx is not None else ():
                back = found.get(maker.number)
                if back is not None and back.arguments[gradient_place(back)] is dx:
                    return True
        return False

    again = True
    while again:
        again = False
        for call in list(left):
            candidates = by_name[str(forward_name(call.name))]
            one = next((one for one in reversed(candidates) if one.number not in found and fits(call, one)), None)
            if one is not None:
                found[one.number] = call
                left.remove(call)
                again = True
    return found


def forward_name(name: str) -> str | None:
    """Return the name of what a backward undoes, None for what is no backward."""
    if name.endswith("_backward"):
        return name.removesuffix("_backward")
    return name.removesuffix("backward") + "forward" if name.endswith(".backward") else None


def gradient_of(call: Call, own: Call, place: int | str) -> Any:
    """Return the gradient of an argument: an op's come in the order of its arguments, a layer's by their names."""
    if isinstance(place, str):
        return None
    if not own.is_method:
        return call.outputs[place] if place < len(call.outputs) else None
    read = call.outputs[0]
    if isinstance(read, tuple):
        return getattr(read, argument_name(own, place), None)
    return read if argument_name(own, place) == "x" else None


def record_of(call: Call) -> Any:
    """Return the record that a backward was handed."""
    return call.arguments[_place(call, "saved", "record", "records") if call.is_method else 1]


def gradient_place(call: Call) -> int:
    """Return where among the arguments of a backward dy stands."""
    return _place(call, "dy", "dlogits") if call.is_method else 0


def argument_name(call: Call, place: int) -> str:
    """Return the name of an argument in the signature."""
    return _parameters(call.function)[place]


def _place(call: Call, *words: str) -> int:
    names = _parameters(call.function)
    return next(number for number, name in enumerate(names) if name in words)


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
