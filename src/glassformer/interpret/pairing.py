"""Which call of the backward pass undoes which call of the forward pass.

A backward is handed the record that its forward returned, and dy, the gradient of what its forward returned. So the two
are found together by that record: a layer's by the object itself, an op's, which layers may put together anew, by the
arrays in it. Where records do not tell, as for two rotations by the same angles, the order of the calls does.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

from ..tree import named_leaves
from .watching import Call

Pairs = dict[int, Call]
"""The call of the backward pass by the number of the call of the forward pass that it undoes."""


def pairs(forward: list[Call], backward: list[Call]) -> Pairs:
    """Return for each call of the forward pass the one that undoes it, where there is one."""
    found: Pairs = {}
    undone: dict[int, Call] = {}  # by the number of the backward call
    by_name: dict[str, list[Call]] = {}
    for call in forward:
        by_name.setdefault(call.name, []).append(call)
    for call in backward:
        name = forward_name(call.name)
        if name is None:
            continue
        outer = call.parent
        while outer is not None and outer.number not in undone:
            outer = outer.parent
        scope = forward if outer is None else [undone[outer.number]]
        start, end = scope[0].number, scope[-1].end
        free = [one for one in by_name.get(name, ()) if start <= one.number < end and one.number not in found]
        one = _best(call, free)
        if one is not None:
            found[one.number] = call
            undone[call.number] = one
    return found


def forward_name(name: str) -> str | None:
    """Return the name of what a backward undoes, None for what is no backward."""
    if name.endswith("_backward"):
        return name.removesuffix("_backward")
    return name.removesuffix("backward") + "forward" if name.endswith(".backward") else None


def _best(call: Call, free: list[Call]) -> Call | None:
    """Return the one of several calls that a backward undoes."""
    if not free:
        return None
    saved = record_of(call)
    if call.is_method:
        for one in free:
            if len(one.outputs) > 1 and one.outputs[1] is saved:
                return one
        own = [one for one in free if one.arguments[0] == call.arguments[0]]
        return own[0] if own else None
    mine = set(map(id, _arrays(saved)))
    alike = [len(mine & set(map(id, _arrays((one.outputs[1:], one.outputs[0]))))) for one in free]
    return free[alike.index(max(alike))]


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


def _arrays(tree: Any) -> Iterable[Any]:
    return [leaf for _, leaf in named_leaves(tree) if hasattr(leaf, "shape")]
