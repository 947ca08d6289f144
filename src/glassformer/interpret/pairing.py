"""Which call of the backward pass undoes which call of the forward pass.

A backward is handed the record of its forward, so the two share arrays. Where a record does not tell, as for a sum, the
gradients do: what the backward of a reader returned is handed to the backward of the op that made what it read.
"""

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
    flow, left = _Flow(), list[Call]()
    for call in backward:
        candidates = by_name.get(forward_name(call.name), [])
        best = _by_record(call, [one for one in candidates if one.number not in flow.found])
        if len(best) == 1:
            flow.note(call, best[0])
        elif candidates:
            left.append(call)
    again = True
    while again:
        again = False
        for call in list(left):
            candidates = [one for one in by_name[forward_name(call.name)] if one.number not in flow.found]
            one = next((one for one in reversed(candidates) if flow.fits(call, one)), None)
            if one is not None:
                flow.note(call, one)
                left.remove(call)
                again = True
    return flow.found


def _by_record(call: Call, candidates: list[Call]) -> list[Call]:
    """Return the calls that share most with the record that a backward was handed."""
    saved = record_of(call) if candidates else None
    if call.is_method:
        return [one for one in candidates if len(one.outputs) > 1 and one.outputs[1] is saved]
    mine = {*ids_in((saved,))}
    alike = [len(mine.intersection(ids_in((one.outputs[1:], one.outputs[0])))) for one in candidates]
    return [one for one, count in zip(candidates, alike, strict=True) if count == max(alike) > 0]


class _Flow:
    """The pairs found, and the gradients that their backwards were handed and returned, by what these are of."""

    def __init__(self) -> None:
        self.found: Pairs = {}
        self.handed: dict[int, list[Any]] = {}
        self.returned: dict[int, list[Any]] = {}

    def note(self, call: Call, own: Call) -> None:
        self.found[own.number] = call
        self.handed.setdefault(id(own.outputs[0]), []).append(call.arguments[gradient_place(call)])
        for place, array in enumerate(own.arguments):
            self.returned.setdefault(id(array), []).append(gradient_of(call, own, place))

    def fits(self, call: Call, own: Call) -> bool:
        """Return whether a gradient links this backward to a matched one, of a reader or of a maker of the value."""
        dy = call.arguments[gradient_place(call)]
        if any(dx is dy for dx in self.returned.get(id(own.outputs[0]), ())):
            return True
        sent = [(gradient_of(call, own, place), array) for place, array in enumerate(own.arguments)]
        return any(dx is other for dx, array in sent if dx is not None for other in self.handed.get(id(array), ()))


def forward_name(name: str) -> str:
    """Return the name of what a backward undoes; "" for what is no backward."""
    if name.endswith(".backward"):
        return name.removesuffix("backward") + "forward"
    return name.removesuffix("_backward") if name.endswith("_backward") else ""


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
