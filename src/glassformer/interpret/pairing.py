"""Pairs of calls: one of the forward pass, and the one of the backward pass that undoes it.

Both passes go through the same layers, and the backward pass is the list reversed: of the calls of an op at one path,
the last is undone first.
"""

import inspect
from collections import defaultdict
from functools import cache
from typing import Any

from .tracing import Call

Pairs = dict[int, Call]
"""The call of the backward pass by the number of the call of the forward pass that it undoes."""


def pairs(forward: list[Call], backward: list[Call]) -> Pairs:
    """Return for each call of the forward pass the one that undoes it, where there is one."""
    made: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in forward:
        made[call.key[:2]].append(call)
    return {made[path, name].pop().number: call for call in backward
            if made.get((path := call.key.path, name := forward_name(call.name)))}  # fmt: skip


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
