"""What fused layers share: linear maps as the loops take them, and facts about a layer that are looked up once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import numpy as np

from ...arrays import Array, Tree
from ...layers import Linear
from .layout import are_arrays

Arrays = tuple[Array, ...]
Fact = TypeVar("Fact")


def once_for_each(find: Callable[[Any], Fact]) -> Callable[[Any], Fact]:
    """Remember what is found about a layer as long as it lives, by its identity: to hash one takes longer than a step.

    A layer is frozen, so what is true of it stays true.
    """
    known: dict[int, tuple[Any, Fact]] = {}

    def look_up(layer: Any) -> Fact:
        place = id(layer)
        entry = known.get(place)
        if entry is None:
            entry = known[place] = ref(layer, lambda _: known.pop(place, None)), find(layer)
        return entry[1]

    return look_up


class Matrices(NamedTuple):
    """Linear maps among the parameters: their names, whether each has a bias, and the shapes of all that they have."""

    names: tuple[str, ...]
    biased: tuple[bool, ...]
    shapes: tuple[tuple[int, ...], ...]  # matrices, then biases; (0,) for none


def matrices_of(parts: dict[str, Linear], names: tuple[str, ...]) -> Matrices | None:
    """Describe linear maps by name; None where they are others, or one is of a class of its own."""
    if set(parts) != set(names) or any(type(part) is not Linear for part in parts.values()):
        return None
    own = [parts[name] for name in names]
    biases = [(part.outputs if part.bias else 0,) for part in own]
    return Matrices(names, tuple(part.bias for part in own), (*((p.inputs, p.outputs) for p in own), *biases))


# Loops read and write where the shapes say they should: shapes are never taken on trust.


def gathered(matrices: Matrices, params: Tree, dtype: np.dtype) -> tuple[Arrays, Arrays] | None:
    """Return matrices and biases, an empty one for none; None where one is not such as the loops take."""
    ws: list[Any] = []
    bs: list[Any] = []
    nothing = _nothing(dtype)
    for name, bias in zip(matrices.names, matrices.biased, strict=True):
        own = params.get(name)
        if own is None or len(own) != 1 + bias:
            return None  # also where something else stands beside them
        ws.append(own.get("w"))
        bs.append(own.get("b") if bias else nothing)
    given = ws + bs if True in matrices.biased else ws
    return (tuple(ws), tuple(bs)) if are_arrays(given, dtype, matrices.shapes[: len(given)]) else None


def empty_like(parts: tuple[Arrays, ...]) -> tuple[Arrays, ...]:
    """Return arrays to fill in with gradients; an empty one, which is none, needs no other."""
    return tuple([tuple([np.empty(p.shape, p.dtype) if p.size else p for p in part]) for part in parts])


def named(matrices: Matrices, dws: Arrays, dbs: Arrays) -> dict[str, Tree]:
    """Return gradients by the names of their parameters."""
    return {
        name: {"w": dw, "b": db} if bias else {"w": dw}
        for name, bias, dw, db in zip(matrices.names, matrices.biased, dws, dbs, strict=True)
    }


@lru_cache
def _nothing(dtype: np.dtype) -> Array:
    return np.empty(0, dtype)
