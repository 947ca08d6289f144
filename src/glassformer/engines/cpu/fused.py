"""What fused layers share: linear maps as the loops take them, and facts about a layer that are looked up once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import numpy as np
from numpy import ndarray

from ...arrays import Array, Tree
from ...layers import Linear

Arrays = tuple[Array, ...]
Fact = TypeVar("Fact")
Place = tuple[str, str | None, str, int, tuple[int, ...]]
"""Where a parameter stands: in which part, in which layer of it, under which name, one of how many; and its shape."""


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
    """Linear maps among the parameters: their names, whether each has a bias, and where all that they have stands."""

    names: tuple[str, ...]
    biased: tuple[bool, ...]
    places: tuple[Place, ...]  # of matrices, then of those biases that there are


def matrices_of(parts: dict[str, Linear], names: tuple[str, ...]) -> Matrices | None:
    """Describe linear maps by name; None where they are others, or one is of a class of its own."""
    if set(parts) != set(names) or any(type(part) is not Linear for part in parts.values()):
        return None
    own = [(name, parts[name]) for name in names]
    ws = [(name, None, "w", 1 + part.bias, (part.inputs, part.outputs)) for name, part in own]
    bs = [(name, None, "b", 2, (part.outputs,)) for name, part in own if part.bias]
    return Matrices(names, tuple(part.bias for _, part in own), (*ws, *bs))


def found_at(places: tuple[Place, ...], params: Tree, dtype: np.dtype) -> list[Array] | None:
    """Return the parameters at these places; None where one is not such as the loops take, or others stand beside it.

    Loops read and write where the shapes say they should: shapes are never taken on trust.
    """
    found = []
    try:
        for part, layer, name, many, shape in places:
            own = params[part] if layer is None else params[part][layer]
            x = own[name]
            # As `is_array` says; a call for each would take as long again.
            if type(x) is not ndarray or x.shape != shape or x.dtype != dtype or not x.flags.c_contiguous:
                return None
            if len(own) != many:
                return None
            found.append(x)
    except (KeyError, TypeError, IndexError):
        return None
    return found


def gathered(matrices: Matrices, params: Tree, dtype: np.dtype) -> tuple[Arrays, Arrays] | None:
    """Return matrices and biases, an empty one for none; None where one is not such as the loops take."""
    found = found_at(matrices.places, params, dtype)
    many = len(matrices.names)
    return None if found is None else (tuple(found[:many]), filled(matrices.biased, found[many:], dtype))


def filled(biased: tuple[bool, ...], biases: list[Array], dtype: np.dtype) -> Arrays:
    """Return a bias for each of several maps, an empty one for those that have none."""
    nothing = _nothing(len(biased), dtype)
    if not biases:
        return nothing
    given = iter(biases)
    return tuple([next(given) if bias else none for bias, none in zip(biased, nothing, strict=True)])


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
def _nothing(many: int, dtype: np.dtype) -> Arrays:
    return (np.empty(0, dtype),) * many
