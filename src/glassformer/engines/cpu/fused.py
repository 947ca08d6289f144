"""What fused layers share: parameters as the loops take them, and facts about a layer that are looked up once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import numpy as np
from numpy import ndarray

from ...arrays import Array, Tree
from ...layers import LayerNorm, Linear

Arrays = tuple[Array, ...]
Fact = TypeVar("Fact")


def once_for_each(find: Callable[[Any], Fact]) -> Callable[[Any], Fact]:
    """Remember what is found about a frozen layer as long as it lives: to hash one takes longer than a step."""
    known: dict[int, tuple[Any, Fact]] = {}

    def look_up(layer: Any) -> Fact:
        place = id(layer)
        entry = known.get(place)
        if entry is None:
            entry = known[place] = ref(layer, lambda _: known.pop(place, None)), find(layer)
        return entry[1]

    return look_up


class Place(NamedTuple):
    """Where a parameter stands: in which part, in which layer of it, under which name, one of how many; its shape."""

    part: str
    layer: str | None
    name: str
    many: int
    shape: tuple[int, ...]


class Parameters:
    """The parameters of a layer, in the groups in which the loops take them.

    groups    the places of each group, None for a parameter that the layer does not have ...
    sizes     ... and how many zeros stand for it
    order     of the parts in the tree of gradients
    """

    def __init__(self, groups: list[list[Place | None]], sizes: tuple[int, ...], order: tuple[str, ...]) -> None:
        self.places = [tuple(place) for group in groups for place in group if place is not None]
        numbers = iter(range(len(self.places)))
        slots = [[None if place is None else next(numbers) for place in group] for group in groups]
        self.groups = list(zip(slots, sizes, strict=True))
        owners: dict[tuple[str, str | None], list[tuple[str, int, int]]] = {}
        for g, group in enumerate(groups):
            for j, place in enumerate(group):
                if place is not None:
                    owners.setdefault(place[:2], []).append((place.name, g, j))
        self.owners = sorted(owners.items(), key=lambda owner: order.index(owner[0][0]))

    def gather(self, params: Tree, dtype: np.dtype, *, frozen: bool = True) -> tuple[Arrays, ...] | None:
        """Return the groups; None if a shape, a type or a layout is not what the loops rely on, or there are others.

        frozen   whether some may be frozen: loops compute all gradients
        """
        found = []
        try:
            for part, layer, name, many, shape in self.places:
                own = params[part] if layer is None else params[part][layer]
                x = own[name]
                # As `is_array` says; a call for each would take as long again.
                if type(x) is not ndarray or x.shape != shape or x.dtype != dtype or not x.flags.c_contiguous:
                    return None
                if len(own) != many or not (frozen or type(own) is dict):
                    return None
                found.append(x)
        except (KeyError, TypeError, IndexError):
            return None
        groups = []
        for slots, size in self.groups:
            zeros = _zeros(size, dtype)
            groups.append(tuple([zeros if slot is None else found[slot] for slot in slots]))
        return tuple(groups)

    def tree(self, groups: tuple[Arrays, ...]) -> Tree:
        """Return gradients by the names of their parameters."""
        grads: dict[str, Any] = {}
        for (part, layer), names in self.owners:
            own = {name: groups[g][j] for name, g, j in names}
            if layer is None:
                grads[part] = own
            elif part in grads:
                grads[part][layer] = own
            else:
                grads[part] = {layer: own}
        return grads


def norm_places(norm: LayerNorm, part: str) -> list[Place | None]:
    """Return the places of gamma and beta."""
    gamma, beta = (Place(part, None, name, 1 + norm.bias, (norm.width,)) for name in ("gamma", "beta"))
    return [gamma, beta if norm.bias else None]


def linear_places(parts: dict[str, Linear], names: tuple[str, ...], part: str | None = None) -> Any:
    """Return the places of matrices and of biases, in a part; None where the maps are others, or of another class."""
    if set(parts) != set(names) or any(type(own) is not Linear for own in parts.values()):
        return None

    def place(layer: str, name: str, shape: tuple[int, ...]) -> Place:
        where = (layer, None) if part is None else (part, layer)
        return Place(where[0], where[1], name, 1 + parts[layer].bias, shape)

    ws = [place(name, "w", (parts[name].inputs, parts[name].outputs)) for name in names]
    bs = [place(name, "b", (parts[name].outputs,)) if parts[name].bias else None for name in names]
    return ws, bs


def empty_like(groups: tuple[Arrays, ...]) -> tuple[Arrays, ...]:
    """Return arrays to fill in with gradients; an empty one, which is none, needs no other."""
    return tuple([tuple([np.empty(p.shape, p.dtype) if p.size else p for p in group]) for group in groups])


@lru_cache
def _zeros(size: int, dtype: np.dtype) -> Array:
    return np.zeros(size, dtype)
