"""Changes: what is put in the place of a value, and what that does to its gradient.

    zero("blocks.1.attention.output.x", head=2)            a head adds nothing
    scale("blocks.0.feed_forward", 0.5, position=-1)
    add("blocks.3", direction)                             steering
    take("blocks.3", other_run, position=4)                patching
    mean("blocks.1.attention.output.x", data_run, head=2)  the average output of a head
    freeze("blocks.2.attention")                           as it was without the other changes
    stop("blocks.1")                                       on the way back: no gradient passes

A change is a pair, as an op is:

    v ← factor · v + value        dv ← factor · dv
    v ← function(v)               dv ← backward(dv, v)        transform("blocks.3", function, backward)

What is replaced by something that does not depend on it gets no gradient, what is scaled a scaled one, and what is
added to all of it.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.arguments import REMEDIES
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, ShapeError
from ..core.tree import flatten, tree_map
from ..proofs.gradient import AGREEMENT, REAL_STEP, STEP
from .names import EVERYWHERE, RETURNED, Address, Selection, Where, axes_of, check_name, full_mask, is_of_source
from .tracing import Call, Key

EXACT = ("take", "resample", "freeze", "transform")
"""Changes whose value must have the very shape of what it replaces."""
BY_HAND = ("put", "scale", "add")
"""Changes by numbers that come from no run."""


@dataclass(frozen=True, eq=False)
class Change:
    """One change of a named value at some of its entries.

    factor, value   v ← factor · v + value
    whole           whether `value` has the shape of all of v, of which the same entries are taken
    word            what it is called
    backward        whether it is the gradient of the value that is changed
    function        v ← function(v) instead, with its gradient dv ← pullback(dv, v), derived where it is None
    config          of the model whose run the value was taken from
    per_position    whether the function gives a token what it gives it alone, whatever the others are
    """

    name: str
    factor: float
    value: Any
    where: Where = EVERYWHERE
    whole: bool = False
    word: str = "put"
    backward: bool = False
    function: Callable[[Array], Array] | None = None
    pullback: Callable[[Array, Array], Array] | None = None
    config: Any = None
    per_position: bool = False

    def __post_init__(self) -> None:
        value = np.asarray(self.value)
        if value.dtype.kind not in "biufc" and not (self.value is None and self.word in EXACT):
            fact = f"the value for the change {self.word!r} of {self.name} is {self.value!r:.80}"
            raise ConfigError(fact, hint="give a number, or an array of numbers")
        if self.word in BY_HAND and (missing := np.isnan(self.factor * value)).any():
            held = "is NaN" if missing.size == 1 else f"has {missing.sum():,} NaN among {missing.size:,} numbers"
            raise ConfigError(
                f"the value of {self.word}({self.name!r}, …) {held}",
                hint="NaN comes from a mean of nothing, 0/0 or inf − inf: look at the arrays that it was computed from",
            )

    def apply(self, x: Array, heads: int) -> Array:
        """Return the value with its entries changed."""
        index = self.where.index(self.name, x.shape, heads)
        value = self._entries(index, x)
        if x.dtype == bool and not np.all(np.isin(value, (0, 1))):
            raise ConfigError(f"{self.name} holds True and False", hint="put True or False there")
        wide = np.result_type(x, 1j) if np.iscomplexobj(value) else x.dtype
        if x.dtype.kind in "iu":
            wide = np.result_type(x, value)
        y = np.array(x, dtype=wide)
        y[index] = value if self.factor == 0 else self.factor * x[index] + value
        return y

    def undo(self, dy: Array, heads: int, x: Array | None = None) -> Array:
        """Return the gradient of the value x as it was, for the gradient of the value as it became."""
        if self.factor == 1:
            return dy
        index = self.where.index(self.name, dy.shape, heads)
        dx = np.array(dy)
        if self.function is None:
            dx[index] = self.factor * dy[index]
        else:
            assert x is not None, "a change by a function keeps what it was given"
            given = dy[index], x[index]
            own = self.pullback
            dx[index] = derived_gradient(self.function, *given, self.name) if own is None else own(*given)
        return dx

    def _entries(self, index: tuple[Any, ...], x: Array) -> Array:
        """Return what is put at, or added to, the entries."""
        wanted = x.shape if self.whole else x[index].shape
        value = np.asarray(self.value if self.function is None else self.function(x[index]))
        try:
            if self.word in EXACT and value.shape != wanted:
                raise ValueError
            value = np.broadcast_to(value, wanted)
        except ValueError:
            raise ShapeError(
                f"the change of {self.name} gives {value.shape}, the entries to change are {wanted}",
                hint="take from a run on as many tokens; else give a number or an array that broadcasts",
            ) from None
        return value[index] if self.whole else value


def listed(changes: Any) -> list[Change]:
    """Return one change, or lists of them, as one list; refuse what is no change."""
    if isinstance(changes, list | tuple):
        return [change for part in changes for change in listed(part)]
    if not isinstance(changes, Change) or not isinstance(changes.name, str):
        raise ConfigError(f"{changes!r:.80} is no change", hint=REMEDIES["Change"])
    return [changes]


def put(name: str, value: Array | float, **where: Selection) -> Change:
    """Put a number, or an array that broadcasts to the entries, in their place."""
    return Change(name, 0.0, value, Where(**where))


def zero(name: str, **where: Selection) -> Change:
    """Put zeros in the place of the entries."""
    return Change(name, 0.0, 0.0, Where(**where), word="zero")


def scale(name: str, factor: float, **where: Selection) -> Change:
    """Multiply the entries by a factor."""
    return Change(name, float(factor), 0.0, Where(**where), word="scale")


def add(name: str, direction: Array | float, **where: Selection) -> Change:
    """Add a number or a direction to the entries."""
    return Change(name, 1.0, direction, Where(**where), word="add")


def take(name: str, run: Mapping[str, Array], *, source: str | None = None, **where: Selection) -> Change:
    """Put there what another run has at the same entries, of the same value or of another one, `source`."""
    check_name(source or name, run)
    config = getattr(getattr(run, "model", None), "config", None)
    return Change(name, 0.0, run[source or name], Where(**where), whole=True, word="take", config=config)


def transform(
    name: str,
    function: Callable[[Array], Array],
    backward: Callable[[Array, Array], Array] | None = None,
    *,
    per_position: bool = False,
    **where: Selection,
) -> Change:
    """Put function(entries) in the place of the entries, in their shape: a projection, a clamp, a rotation.

    backward       (dy, entries) to the gradient of the entries; derived by the complex step unless given, which takes a
                   function that is analytic: not one that computes by abs, rounding or a cast
    per_position   whether it gives each token what it would give it alone. While a model writes, such a function gets
                   the tokens that are new; any other gets the whole text, which is read again for every token
    """
    there = Where(**where)
    return Change(name, 0.0, None, there, False, "transform", False, function, backward, per_position=per_position)


def resample(name: str, run: Mapping[str, Array], order: Sequence[int], **where: Selection) -> Change:
    """Put there what other examples of a run have: example n gets what example order[n] has."""
    check_name(name, run)
    value = run[name]
    numbers = np.asarray(order)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not np.all((numbers >= 0) & (numbers < len(value))):
        raise ConfigError(f"the order is {order!r}", hint=f"give numbers of examples, from 0 to {len(value) - 1}")
    return Change(name, 0.0, value[numbers], Where(**where), whole=True, word="resample")


def mean(name: str, runs: Mapping[str, Array] | Sequence[Mapping[str, Array]], **where: Selection) -> Change:
    """Put there the average over all examples and positions of one run or several: of maps, over examples alone.

    Padding does not count.
    """
    each = [runs] if isinstance(runs, Mapping) else list(runs)
    if not each:
        raise ConfigError("there is no run to take the mean of", hint="watch the model on some data")
    for run in each:
        check_name(name, run)
    names = axes_of(name, each[0][name].ndim)
    axes = tuple(n for n, axis in enumerate(names) if axis == "example" or (axis == "position" and "key" not in names))
    total: Any = 0.0
    count: Any = 0.0
    for run in each:
        value = run[name]
        counted = _counted(run, name, value.shape, names)
        total = total + np.sum(value * counted, axis=axes, keepdims=True)
        count = count + np.sum(np.broadcast_to(counted, value.shape), axis=axes, keepdims=True)
    if not np.all(count):
        raise ConfigError(f"there is nothing to take the mean of {name} over", hint="some data must not be padding")
    return Change(name, 0.0, (total / count).astype(value.dtype), Where(**where), whole=True, word="mean")


def _counted(run: Mapping[str, Array], name: str, shape: tuple[int, ...], names: list[str]) -> Array:
    """Return 1 where a value is one of a token, and 0 where it is one of padding; it broadcasts to the value."""
    batch = getattr(run, "batch", None)
    of_source = batch is not None and batch.source is not None and is_of_source(name)
    mask = None if batch is None else batch.source_mask if of_source else batch.mask
    if mask is None or "key" in names or not {"example", "position"} <= {*names}:
        return np.ones((1,) * len(shape))
    examples, tokens = np.shape(mask)
    more = shape[names.index("position")] - tokens
    if shape[0] != examples or more < 0:  # no value of these tokens, such as a bias by head
        return np.ones((1,) * len(shape))
    real = np.pad(np.asarray(mask, dtype=float), ((0, 0), (more, 0)), constant_values=1)  # a learned vector before them
    kept = [size if axis in ("example", "position") else 1 for axis, size in zip(names, shape, strict=True)]
    return real.reshape(kept)


def freeze(name: str, **where: Selection) -> Change:
    """Leave the entries as they were without the other changes."""
    return Change(name, 0.0, None, Where(**where), whole=True, word="freeze")


def stop(name: str, **where: Selection) -> Change:
    """Stop the gradient at the entries."""
    return Change(name, 0.0, 0.0, Where(**where), word="stop", backward=True)


def put_gradient(name: str, value: Array | float, **where: Selection) -> Change:
    """Put other numbers in the place of the gradient of the entries."""
    return Change(name, 0.0, value, Where(**where), word="put_gradient", backward=True)


def scale_gradient(name: str, factor: float, **where: Selection) -> Change:
    """Multiply the gradient of the entries by a factor."""
    return Change(name, float(factor), 0.0, Where(**where), word="scale_gradient", backward=True)


def add_gradient(name: str, value: Array | float, **where: Selection) -> Change:
    """Add to the gradient of the entries: of a number that depends on them besides."""
    return Change(name, 1.0, value, Where(**where), word="add_gradient", backward=True)


# --- interventions ---------------------------------------------------------------------------------------------------

ALL = slice(None)

Placed = dict[Key, list[tuple[int | str, slice, Change]]]
"""Changes by the key of the call that they are made at: at which place, for which examples, and how."""


@dataclass(eq=False)
class Intervention:
    """Makes changes where ops make or read values, in a run on all of a text or while a model writes.

    piece       where the tokens stand that are read; None: all of a text is
    originals   what was there before, by its address
    no_effect   the changes of a run that altered nothing
    made        all changes that were made
    """

    changes: Placed
    heads: int
    piece: Any = None
    originals: dict[Address, Array] = field(default_factory=dict)
    no_effect: list[Change] = field(default_factory=list)
    made: set[Change] = field(default_factory=set)

    def before(self, call: Call) -> None:
        """Change what a call reads."""
        for place in {place for place, *_ in self.changes.get(call.key, ())}:
            if isinstance(place, str):
                call.settings = {**call.settings, place: self._changed(call, place, full_mask(call))}
            elif place != RETURNED:
                value = self._changed(call, place, call.arguments[place])
                call.arguments = (*call.arguments[:place], value, *call.arguments[place + 1 :])

    def after(self, call: Call) -> None:
        """Change what a call returned. An op's record stays, for its own backward; a layer's holds what it returned."""
        if any(place == RETURNED for place, *_ in self.changes.get(call.key, ())):
            y, *rest = call.outputs
            value = self._changed(call, RETURNED, y)
            if call.is_method:
                rest = [exchanged(part, y, value) for part in rest]
            call.result = (value, *rest) if isinstance(call.result, tuple) else value

    def of_piece(self, change: Change, value: Array) -> Array:
        """Return a value of some of the tokens with a change."""
        self.made.add(change)
        return self.piece.changed(change, value, self.heads)

    def _changed(self, call: Call, at: int | str, value: Array) -> Array:
        self.originals[Address(call.number, at)] = value
        for place, rows, change in self.changes[call.key]:
            if place != at:
                continue
            if self.piece is not None:
                value = self.of_piece(change, value)
                continue
            changed = change.apply(value[rows], self.heads)
            same = changed == value[rows]
            # Scores that the mask hides have no effect.
            if np.all(same[full_mask(call)[rows]] if call.name == "softmax" and place == 0 else same):
                self.no_effect.append(change)
            value = np.array(value, dtype=changed.dtype)  # a complex step makes a value complex
            value[rows] = changed
        return value


def exchanged(tree: Tree, old: Array, new: Array) -> Tree:
    """Return a tree with another array in the place of one; the tree itself if that is not in it."""
    if not any(leaf is old for leaf in flatten(tree).values()):
        return tree
    return tree_map(lambda leaf: new if leaf is old else leaf, tree)


# --- the gradient of a function that has no backward -----------------------------------------------------------------

SAME = 1e-9
"""How far J v may differ from the sum of its parts."""
SMALL = 4096
"""Entries that a function may mix: each takes a step."""


def derived_gradient(function: Callable[[Array], Array], dy: Array, x: Array, name: str) -> Array:
    """Return the gradient of x for that of function(x), by the complex step; refuse where it cannot be derived.

        Im f(x + i·h·v) / h = J v        with J the derivatives of all entries of f by all entries of x;  dx = Jᵀ dy

    One step along ones gives all of J for a function of each entry alone, one step for each feature for a function of
    each vector, one for each entry otherwise. A step along a random v tells which of these a function is, and a real
    quotient along it whether the function is analytic at all: abs, rounding and casts lose the imaginary part.
    """
    exact = np.asarray(x, dtype=np.float64)
    v = np.random.default_rng(0).standard_normal(x.shape)

    def along(direction: Array) -> Array:
        return np.imag(function(exact + 1j * STEP * direction)) / STEP

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            moved = along(v)
        except (TypeError, ValueError):  # it refuses complex numbers
            raise _refusal(name, "does not take complex numbers") from None
        ahead, behind = (np.real(function(exact + sign * REAL_STEP * v)) for sign in (1, -1))
        size = max(float(np.abs(moved).max()), float(np.abs(ahead).max()), 1e-30)
        if not np.allclose(moved, (ahead - behind) / (2 * REAL_STEP), rtol=0, atol=AGREEMENT * size):
            raise _refusal(name, "is not analytic: abs, rounding and casts lose what the complex step needs")
        axes = tuple(range(x.ndim))
        for mixed in ((), axes[-1:], axes):  # each entry alone, each vector, all entries together
            sizes = [x.shape[axis] for axis in mixed]
            dx, total = np.zeros(x.shape), np.zeros(x.shape)
            for place in np.ndindex(*sizes) if np.prod(sizes) <= SMALL else ():
                direction = np.zeros(x.shape)
                direction[(..., *place)] = 1
                column = along(direction)
                total += column * np.sum(v * direction, axis=mixed, keepdims=True)
                dx += direction * np.sum(dy * column, axis=mixed, keepdims=True)
            if np.allclose(total, moved, rtol=0, atol=SAME * size):
                return dx.astype(dy.dtype)
    raise _refusal(name, f"mixes more than {SMALL:,} entries")


def _refusal(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"the function that changes {name} has no backward, and {why}",
        hint="give its gradient: transform(name, function, backward=lambda dy, x: …)",
    )
