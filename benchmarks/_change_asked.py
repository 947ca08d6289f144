"""One change as it is asked for, and the same of one whole text, for `changes.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.interpret import changes as offered
from glassformer.interpret.names import axes_of


@dataclass(frozen=True)
class Function:
    """A function of values, by its name; `alone` tells whether each position gets the same alone as among others."""

    title: str
    alone: bool
    call: Any


def functions(axes: list[str], factor: float, shift: float, *, is_bool: bool) -> list[Function]:
    """Return what may be drawn for a value of these axes."""
    is_map = "key" in axes
    found = [
        Function("x[..., ::-1]", not is_map, lambda x: x[..., ::-1]),
    ]
    if "position" in axes:
        place = axes.index("position")
        found += [Function("reversed positions", False, lambda x: np.flip(x, place))]
    if is_bool:
        return [*found, Function("not x", not is_map, np.logical_not)]
    found += [
        Function("a tanh x", True, lambda x: factor * np.tanh(x)),
        Function("a x + x²", True, lambda x: factor * x + x * x),
        # What is not zero at zero changes hidden keys too, of which a longer text has more.
        Function("a x + b", not is_map, lambda x: factor * x + shift),
        Function("clip", True, lambda x: np.clip(x, -abs(shift), abs(shift))),
        Function("x − mean of features or keys", not is_map, lambda x: x - x.mean(axis=-1, keepdims=True)),
    ]
    if "head" in axes:
        head = axes.index("head")
        found += [Function("mean over heads − a x", True, lambda x: x.mean(axis=head, keepdims=True) - factor * x)]
    if "position" in axes:
        found += [
            Function("x − mean of positions", False, lambda x: x - x.mean(axis=place, keepdims=True)),
            Function("sum of positions so far", False, lambda x: np.cumsum(x, axis=place)),
            Function("x times the how-manieth", False, lambda x: _numbered(x, place) * x),
            Function("x times how many", False, lambda x: 0.2 * x.shape[place] * x),
        ]
    return found


def _numbered(x: Any, place: int) -> Any:
    return np.arange(x.shape[place]).reshape([-1 if axis == place else 1 for axis in range(x.ndim)]) / 3


@dataclass(frozen=True)
class Asked:
    """One change as it is asked for.

    where      selections by axis; "prompt" and "new" among those of positions
    value      a factor, a number, an array, a function or a run, as the kind takes it
    aligned    axes of the array value, from the end, that go with a list of numbers: they lose what is not there yet
    settings   other arguments
    fits       whether the value is that of a whole run, of texts as long
    """

    kind: str
    name: str
    where: dict[str, Any]
    value: Any = None
    aligned: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    fits: bool = False

    def change(self) -> Any:
        """Return it for the model that writes."""
        return self._made(self.where, self.value, self.settings)

    def of_text(self, run: Any, example: int, prompt: int) -> Any:
        """Return the same of one whole text so far; None where it holds none of the entries.

        example   the number of the text among all that are written
        prompt    how many of its tokens are the prompt
        """
        where, value = dict(self.where), self.value
        if isinstance(where.get("example"), int | list):
            numbers = np.atleast_1d(where.pop("example"))
            if example not in numbers:
                return None
        if self.name not in run:
            return self._made(where, value, self._declared())
        shape = run[self.name].shape
        for axis, size in zip(axes_of(self.name, len(shape)), shape, strict=True):
            asked = where.get(axis)
            if axis not in ("position", "key") or asked is None:
                continue
            if isinstance(asked, str):
                asked = slice(0, prompt) if asked == "prompt" else slice(prompt, None)
            if isinstance(asked, slice):
                numbers = np.arange(size)[asked]
            else:
                numbers = np.atleast_1d(asked)
                there = (numbers >= -size) & (numbers < size)
                numbers = numbers[there]
                if axis in self.aligned and numbers.size:
                    value = np.compress(there, value, axis=self.aligned[axis])
            if not numbers.size:
                return None
            where[axis] = numbers.tolist()
        return self._made(where, value, self._declared())

    def _declared(self) -> dict[str, Any]:
        """Return the settings of a run on a whole text, where a function gets what is there in any case."""
        return {name: given for name, given in self.settings.items() if name != "per_position"}

    def _made(self, where: dict[str, Any], value: Any, settings: dict[str, Any]) -> Any:
        make = getattr(offered, self.kind)
        if self.kind in ("zero", "freeze", "stop"):
            return make(self.name, **where)
        if self.kind == "resample":
            return make(self.name, value, [1], **where)
        given = value.call if isinstance(value, Function) else value
        return make(self.name, given, **settings, **where)

    def __str__(self) -> str:
        parts = [repr(self.name)]
        if self.value is not None:
            value = self.value
            if isinstance(value, Function):
                parts.append(f"<{value.title}>")
            elif np.ndim(value) == 0 and isinstance(value, int | float | np.generic):
                parts.append(f"{value:.3g}" if not isinstance(value, bool) else str(value))
            elif isinstance(value, np.ndarray):
                parts.append(f"<array {value.shape}>")
            else:
                parts.append("<run>")
        parts += [f"{name}={given!r}" for name, given in {**self.settings, **self.where}.items()]
        return f"{self.kind}({', '.join(parts)})"
