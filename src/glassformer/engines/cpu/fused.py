"""What fused layers share: linear maps as the loops take them, and facts about a layer that are looked up once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import numpy as np

from ...arrays import Array, Tree
from ...layers import Linear
from .layout import is_array

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


class Matrix(NamedTuple):
    """A linear map among the parameters: its name, the shape of its matrix, and whether it has a bias."""

    name: str
    shape: tuple[int, int]
    bias: bool


def matrices_of(parts: dict[str, Linear], names: tuple[str, ...]) -> list[Matrix] | None:
    """Describe linear maps by name; None where they are others, or one is of a class of its own."""
    if set(parts) != set(names) or any(type(part) is not Linear for part in parts.values()):
        return None
    return [Matrix(name, (parts[name].inputs, parts[name].outputs), parts[name].bias) for name in names]


# Loops read and write where the shapes say they should: shapes are never taken on trust.


def gathered(matrices: list[Matrix], params: Tree, dtype: np.dtype) -> tuple[Arrays, Arrays] | None:
    """Return matrices and biases, an empty one for none; None where one is not such as the loops take."""
    ws, bs, nothing = [], [], _nothing(dtype)
    for name, shape, bias in matrices:
        own = params.get(name)
        if own is None or len(own) != 1 + bias or not is_array(own.get("w"), dtype, shape):
            return None  # also where something else stands beside them
        b = own.get("b") if bias else nothing
        if bias and not is_array(b, dtype, shape[1:]):
            return None
        ws.append(own["w"])
        bs.append(b)
    return tuple(ws), tuple(bs)


def named(matrices: list[Matrix], dws: Arrays, dbs: Arrays) -> dict[str, Tree]:
    """Return gradients by the names of their parameters."""
    return {
        name: {"w": dw, "b": db} if bias else {"w": dw}
        for (name, _, bias), dw, db in zip(matrices, dws, dbs, strict=True)
    }


@lru_cache
def _nothing(dtype: np.dtype) -> Array:
    return np.empty(0, dtype)
