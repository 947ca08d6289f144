"""Changes of a piece of a text: what a run on all of the text would change, at the tokens that one step reads.

A model that writes reads its text piece by piece, several texts at once, padded on the left. A change is about
positions of the text: here these are found among the tokens of a piece, and so are the keys that they look at.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.arrays import Array, cast, namespace
from ..core.errors import ConfigError, ShapeError
from .changes import Change
from .names import Selection, axes_of, is_of_source

BY_TOKEN = ("position", "key")
"""The axes of tokens."""


@dataclass(frozen=True, eq=False)
class Piece:
    """The tokens that are read, of texts that do not meet.

    positions   (T,) or (R, T) where each stands in its own text; below zero: padding
    keys        (S,) or (R, S) likewise, of all tokens that these may look at
    on_host     calls a function of NumPy arrays, given what its result is like, and its arguments
    """

    positions: Array
    keys: Array
    on_host: Callable[..., Array]

    def changed(self, change: Change, x: Array, heads: int) -> Array:
        """Return a value of these tokens with a change."""
        axes, xp = axes_of(change.name, x.ndim), namespace(x)
        tokens = [axis for axis in BY_TOKEN if axis in axes]
        at = {axis: self._at(change.name, axis, x.shape[axes.index(axis)], axes) for axis in tokens}
        found = {axis: matches(getattr(change.where, axis), places) for axis, places in at.items()}
        one = [1 if axis in ("example", *tokens) else size for axis, size in zip(axes, x.shape, strict=True)]
        inside = replace(change.where, position=None, key=None).index(change.name, tuple(one), heads)
        chosen: Any = np.zeros(one, dtype=bool)
        chosen[inside] = True
        for axis, (hit, _) in found.items():
            chosen = chosen & _spread(hit, x.ndim, axes.index(axis))
        if change.function is not None:
            return self.on_host(lambda *given: _by_function(change, axes, *given), x, x, xp.asarray(chosen))
        value = _value(change, axes, one, heads)
        for axis, (_, which) in found.items():
            number = axes.index(axis)
            if value.shape[number] > 1:
                which = xp.clip(xp.asarray(_spread(which, x.ndim, number)), 0, value.shape[number] - 1)
                value = xp.take_along_axis(xp.asarray(value), which, axis=number)
        y = xp.asarray(value) if change.factor == 0 else change.factor * x + xp.asarray(value)
        return cast(xp.where(xp.asarray(chosen), y, x), x.dtype)

    def _at(self, name: str, axis: str, size: int, axes: list[str]) -> Array:
        """Return where the tokens of an axis stand."""
        if reads_source(name, axis):
            return np.arange(size)
        places = self.positions if axis == "position" else self.keys
        return places[..., -size:] if "example" in axes else places.reshape(-1, places.shape[-1])[0, -size:]


def matches(asked: Selection, places: Array) -> tuple[Array, Array]:
    """Return which places are asked for, and the how-manieth of those asked for each is."""
    if asked is None:
        return places >= 0, 0 * places
    if isinstance(asked, slice):
        start, stop, step = asked.start or 0, asked.stop, asked.step or 1
        found = (places >= start) & ((places - start) % step == 0)
        return found if stop is None else found & (places < stop), (places - start) // step
    equal = places[..., None] == np.atleast_1d(np.asarray(asked))
    return equal.any(axis=-1), equal.argmax(axis=-1)


def check_asked(change: Change) -> None:
    """Refuse positions and keys that are not counted from the beginning: the end is not known yet."""
    for axis in BY_TOKEN:
        asked = getattr(change.where, axis)
        if isinstance(asked, slice):
            if (asked.start or 0) < 0 or (asked.stop or 0) < 0 or (asked.step or 1) < 1:
                raise ConfigError(f"{axis} is {asked}", hint="count from the beginning: the end is not known yet")
        elif asked is not None:
            numbers = np.atleast_1d(np.asarray(asked))
            if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or (numbers < 0).any():
                raise ConfigError(f"{axis} is {asked!r}", hint='use "prompt", "new", a slice, or numbers from 0 on')


def within(change: Change, axes: list[str], sizes: dict[str, int]) -> Change | None:
    """Return a change of a text of so many tokens, and source tokens: at the places that it has; None for nothing."""
    for axis in BY_TOKEN:
        asked, size = getattr(change.where, axis), sizes["source" if reads_source(change.name, axis) else "text"]
        if asked is None or axis not in axes:
            continue
        numbers = np.atleast_1d(np.arange(asked.stop or size)[asked] if isinstance(asked, slice) else np.asarray(asked))
        there = numbers < size
        if not there.any():
            return None
        value, number = change.value, axes.index(axis) - len(axes)
        if np.ndim(value) >= -number and np.shape(value)[number] == len(numbers) > 1 and not change.whole:
            value = np.compress(there, value, axis=number)
        change = replace(change, value=value, where=replace(change.where, **{axis: numbers[there]}))
    return change


def is_of_all_tokens(change: Change, axes: list[str]) -> bool:
    """Return whether a change has a value for each token of a text, however many these are."""
    for axis in {*BY_TOKEN} & {*axes}:
        asked, size = getattr(change.where, axis), np.shape(change.value)[axes.index(axis) - len(axes) :][:1]
        is_open = asked is None or (isinstance(asked, slice) and asked.stop is None)
        if (change.whole or is_open) and np.ndim(change.value) >= len(axes) - axes.index(axis) and size != (1,):
            return True
    return False


def reads_source(name: str, axis: str) -> bool:
    """Return whether an axis of a value is that of the tokens of a source."""
    return is_of_source(name) or (axis == "key" and "cross_attention" in name.split("."))


def _spread(chosen: Any, count: int, axis: int) -> Any:
    """Give what is along one axis, or along examples and that axis, all axes of a value."""
    shape = [1] * count
    shape[axis] = chosen.shape[-1]
    if chosen.ndim == 2:
        shape[0] = chosen.shape[0]
    return chosen.reshape(shape)


def _value(change: Change, axes: list[str], one: list[int], heads: int) -> Array:
    """Return what is put, or added, at each feature of a token: one for all, or as many as are asked for by number."""
    asked = [getattr(change.where, axis) if axis in BY_TOKEN else None for axis in axes]
    sizes = [size if part is None else _count(part) for part, size in zip(asked, one, strict=True)]
    index = replace(change.where, position=None, key=None).index(change.name, tuple(sizes), heads)
    full = np.zeros(sizes)
    entries, value = full[index].shape, np.asarray(change.value)
    try:
        full[index] = np.broadcast_to(value, sizes)[index] if change.whole else np.broadcast_to(value, entries)
    except ValueError:
        raise ShapeError(
            f"the change of {change.name} gives {value.shape}, the entries of the tokens asked for are {entries}",
            hint="give a number, or an array that broadcasts: new tokens have no values of their own in it",
        ) from None
    return full


def _count(asked: Selection) -> int:
    """Return how many tokens are asked for, 1 if it is not known."""
    if isinstance(asked, slice):
        return 1 if asked.stop is None else len(np.arange(asked.stop)[asked])
    return np.size(asked)  # type: ignore[arg-type]


def _by_function(change: Change, axes: list[str], x: Array, chosen: Array) -> Array:
    """Return a value with what a function makes of the entries of each text, at its tokens that are chosen."""
    y, chosen = np.array(x), np.broadcast_to(chosen, x.shape)
    rows = [slice(n, n + 1) for n in range(len(y))] if axes[0] == "example" else [slice(None)]
    for row in rows:  # each text alone, as in a run on it
        index = np.ix_(*(np.unique(places) for places in np.nonzero(chosen[row])))
        given = y[row][index]
        if given.size:
            made = np.asarray(change.function(given))  # type: ignore[misc]
            if made.shape != given.shape:
                fact = f"the function that changes {change.name} returns {made.shape} for entries {given.shape}"
                raise ShapeError(fact, hint="return as many")
            y[row][index] = made
    return y
