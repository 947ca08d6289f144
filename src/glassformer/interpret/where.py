"""Selections of entries of a value: by example, head, position, key and feature, whatever its axes are."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, LengthError

Selection = int | slice | Sequence[int] | Array | None

MAPS = ("weights", "scores", "mask", "keep")
BY_HEAD = ("q", "k", "v", *MAPS)
BATCH = ("tokens", "targets", "mask", "source", "source_mask", "segments")
PARAMETERS = ("w", "b", "gamma", "beta", "table", "cls")
MIXED = "attention.output.x"
"""How the value ends in which the heads stand side by side, each in channels of its own."""


@dataclass(frozen=True)
class Where:
    """Some entries of a value; what is None is not asked about.

    example    of the batch
    head       of attention; of keys and values, their own heads, which may be fewer
    position   of the token; in scores and weights, of the one that looks
    key        in scores and weights, of the one that is looked at
    feature    of the vector: a neuron of a feed-forward layer, a channel of a head, a token of the logits
    row        of a parameter: the input that a weight belongs to, the token or the position of a table
    """

    example: Selection = None
    head: Selection = None
    position: Selection = None
    key: Selection = None
    feature: Selection = None
    row: Selection = None

    def index(self, name: str, shape: tuple[int, ...], heads: int) -> tuple[Any, ...]:
        """Return the index of these entries in a value of such a name and shape, with one axis of examples."""
        axes = axes_of(name, len(shape))
        asked = {field.name: getattr(self, field.name) for field in fields(self)}
        if asked["head"] is not None and name.endswith(MIXED):
            if asked["feature"] is not None:
                raise ConfigError("a head and a feature both say which features", hint="give one of them")
            channels = np.arange(shape[-1]).reshape(heads, -1)
            asked["feature"] = channels[numbers_of(name, "head", asked["head"], heads)].reshape(-1)
            asked["head"] = None
        for axis, part in asked.items():
            if part is not None and axis not in axes:
                sizes = ", ".join(f"{word} {size}" for word, size in zip(axes, shape, strict=True))
                raise ConfigError(f"{name} has no {axis}", hint=f"it has {sizes}")
        numbers = [numbers_of(name, axis, asked[axis], size) for axis, size in zip(axes, shape, strict=True)]
        return np.ix_(*numbers)


EVERYWHERE = Where()


def is_of_source(name: str) -> bool:
    """Return whether the positions of a value are those of the source that an encoder-decoder reads."""
    parts = name.split(".")
    of_memory = "cross_attention" in parts and bool({"k", "v", "key", "value"} & {*parts})
    return parts[0] == "encoder" or name.startswith("source") or of_memory


def axes_of(name: str, count: int) -> list[str]:
    """Return what the axes of a value are called."""
    last = name.rpartition(".")[2]
    if name in BATCH:
        return ["example", "position"][:count]
    if last in PARAMETERS:
        return ["row", "feature"][-count:]
    if last in BY_HEAD and count == 4:
        return ["example", "head", "position", "key" if last in MAPS else "feature"]
    if name.endswith("embedding.positions"):
        return ["example", "position", "feature"][-count:]  # in a run, the same for every example
    if last in ("bias", "relative", "positions") and count == 3:
        return ["head", "position", "key"]  # likewise
    return {1: ["example"], 2: ["example", "feature"], 3: ["example", "position", "feature"]}.get(count, [])


def numbers_of(name: str, axis: str, part: Selection, size: int) -> Array:
    """Return the numbers of the entries along one axis."""
    if part is None or isinstance(part, slice):
        return np.arange(size)[slice(None) if part is None else part]
    numbers = np.atleast_1d(np.asarray(part))
    if numbers.dtype == bool and numbers.shape == (size,):
        return np.flatnonzero(numbers)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ConfigError(f"{axis} is {part!r}", hint="give a number, numbers, a slice, or True or False for each")
    wrong = numbers[(numbers < -size) | (numbers >= size)]
    if wrong.size:
        raise LengthError(f"{name} has no {axis} {wrong[0]}", hint=f"it has {size}, from 0 to {size - 1}")
    return numbers % size


def part_name(name: str, **numbers: int | None) -> str:
    """Return the name of a sublayer, or of its head or neuron, as tables show it: blocks.0.attention head 3."""
    words = [f"{word} {number}" for word, number in numbers.items() if number is not None]
    return " ".join([name.removesuffix(".output.x"), *words])
