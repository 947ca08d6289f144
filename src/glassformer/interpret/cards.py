"""The cards of a run: its steps and gradients are computed once and serve every card."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.errors import ConfigError, GlassformerError, LengthError, did_you_mean
from ..core.quantized import unpacked
from ..core.tree import flatten, tree_map
from ..proofs.gradient import STEP
from .card import Card, source_of
from .changes import add
from .explainer import LOSS_NAME, Explainer, loss, mask, summed, value_of
from .formula import Formula, Index, given
from .gradients import LOSS, Gradients, Loss, Target, gradients
from .graph import Graph, Step
from .names import INPUT, MASK, axes_of
from .run import Run, watch

TOLERANCE = {"float64": 1e-9, "float32": 1e-3}
"""A card notes where its formula differs from the number by more than this, relative to its terms."""


class Proof(NamedTuple):
    """A derivative found twice."""

    gradient: float  # by the backward pass
    step: float  # by the complex step

    @property
    def difference(self) -> float:
        """Their difference, divided by the larger of the two or by one."""
        return abs(self.gradient - self.step) / max(abs(self.gradient), abs(self.step), 1.0)


class Cards:
    """The cards of a run, and of the gradients of one number: Cards(run).card("blocks.0", (0, 3, 5)).

    found     the gradients, where they are known already
    why_not   why no gradients are computed, if they are not
    """

    def __init__(self, run: Run, of: Target = LOSS, found: Gradients | None = None, *, why_not: str = "") -> None:
        self.run, self.of, self.why_not = run, of, why_not
        self._given = found

    @cached_property
    def _params(self) -> dict[str, Array]:
        return flatten(self.run.params)

    @cached_property
    def graph(self) -> Graph:
        """The steps of the run."""
        return Graph(self.run)

    @cached_property
    def _explainer(self) -> Explainer:
        return Explainer(self.graph, lambda: self.found, self.of)

    def card(self, name: str, index: tuple[int, ...] = (), *, gradient: bool = False) -> Card:
        """Return the card of one entry of a value, a parameter or a part of the batch, or of its gradient."""
        array = self.array(name)
        place = _checked(name, index, array.shape)
        return self._of_gradient(name, array, place) if gradient else self._of_value(name, array, place)

    def names(self) -> list[str]:
        """Return everything that has cards."""
        known = [*self.run, *self._params, *self.graph.inputs]
        return list(dict.fromkeys([*known, *([LOSS_NAME] if self.run.batch.targets is not None else [])]))

    def formulas(self) -> dict[str, Any]:
        """Return the formula of every value with its letters, and the lines that compute it, as plain data.

        It is that of the largest entry at the end: what stands first, or is hidden, may be made in another way.
        """
        values, sources = {}, {}
        changes = {self.run.addresses.get(change.name): change.word for change in self.run.changes}
        for name, address in self.run.addresses.items():
            array = self.run[name]
            op, made, function, note = self._explained(name, array, _typical(array))
            if address in changes:
                made, function, note = None, None, f"changed: {changes[address]}"
            source = source_of(function, made.lines if made else "")
            key = None if source is None else f"{source.name} {source.lines}"
            if source is not None:
                sources[key] = source._asdict()
            also = [other for other in self.graph.names(array) if other != name]
            feeds, math = self._feeds(name, array), "" if made is None else made.mathml
            values[name] = {"op": op, "note": note, "math": math, "also": also, "feeds": feeds, "source": key}
        return {"of": values, "sources": sources}

    def has_gradient(self, name: str) -> bool:
        """Return whether there is a gradient of such a name."""
        return self._gradient(name, (0,) * self.array(name).ndim)[0] is not None

    @property
    def found(self) -> Gradients | None:
        """The gradients, None where there are none."""
        return self._searched[0]

    @cached_property
    def _searched(self) -> tuple[Gradients | None, str]:
        """The gradients, or why there are none."""
        if self.why_not:
            return None, self.why_not
        try:
            return self._given or gradients(self.run, self.of), ""
        except GlassformerError as error:
            return None, str(error).partition("\n")[0]

    def array(self, name: str) -> Array:
        """Return a value, a parameter, a part of the batch or the loss by its name."""
        if name == LOSS_NAME:
            return np.asarray(self.run.loss)
        if name in self._params:
            return unpacked(self._params[name])
        if name in self.run:
            return self.run[name]
        if name in self.graph.inputs:
            return self.graph.inputs[name]
        known = self.names()
        raise ConfigError(f"there is no value or parameter {name!r} in this run", hint=did_you_mean(name, known))

    def prove(self, name: str, index: tuple[int, ...]) -> Proof:
        """Find the gradient of one entry of a value or a parameter by the complex step as well, in float64.

            f(v + ih) = f(v) + ih f′(v) − …        so        f′(v) = Im f(v + ih) / h

        Nothing is subtracted, so h can be tiny and no digit is lost. The model runs once more with one entry a little
        off the real line; the imaginary part of the target is the derivative, found without any backward pass.
        """
        value = self.array(name)
        place = _checked(name, index, value.shape)
        if value.dtype.kind not in "fc" or name.endswith(MASK):
            raise ConfigError(f"{name} is no real number", hint="a derivative is for values and parameters")
        run, found = self._double
        where = dict(zip(axes_of(name, value.ndim), place, strict=False))
        measured = self.of.value(run.changed(add(name, STEP * 1j, **where)))
        gradient = found.param(name) if name in self._params else found[name]
        return Proof(float(gradient[place]), float(np.imag(measured) / STEP))

    @cached_property
    def _double(self) -> tuple[Run, Gradients]:
        """Return the same run, with the same changes, and its gradients in float64."""
        if all(leaf.dtype == np.float64 for leaf in self._params.values()):
            return self.run, self.found or gradients(self.run, self.of)
        start = self.run.plain or self.run
        params = tree_map(lambda leaf: unpacked(leaf).astype(np.float64), start.params)
        run = watch(start.model, params, start.batch, labels=start.labels).changed(*self.run.changes)
        return run, gradients(run, self.of)

    # --- values ------------------------------------------------------------------------------------------------------

    def _of_value(self, name: str, array: Array, index: Index) -> Card:
        """Return the card of a value: who made it, and what its gradient is."""
        value = float(array[index])
        op, made, function, note = self._explained(name, array, index)
        gradient, reason = self._gradient(name, index)
        kind = "value" if name in self.run or name == LOSS_NAME else "input"
        kind = "parameter" if name in self._params else kind
        return Card(
            name, index, _axes(name, array), array.shape, value, kind, op, made,
            note or _differs(made, value, self.run.logits),
            feeds=self._feeds(name, array),
            also=[other for other in self.graph.names(array) if other != name],
            source={
                "forward": source_of(function, made.lines if made else ""),
                "backward": None if gradient is None else self._explainer.source(name, array, index, gradient),
            },
            gradient=gradient, reason=reason,
            read=[] if made else self._read(array),
        )  # fmt: skip

    def _explained(
        self, name: str, array: Array, index: Index
    ) -> tuple[str, Formula | None, Callable[..., Any] | None, str]:
        """Return who made an entry, its formula, the function with its lines, and what there is to note."""
        last = name.rpartition(".")[2]
        if name == LOSS_NAME:
            return "ops.cross_entropy", self._loss, ops.cross_entropy, ""
        if name in self._params or name not in self.run:
            what = "a parameter" if name in self._params else "given with the batch"
            return what, given(last, what, float(array[index])), None, ""
        address = self.run.addresses[name]
        changes = [change.word for change in self.run.changes if self.run.addresses.get(change.name) == address]
        before = self.run.originals.get(address)
        if changes and before is not None and before[index] != array[index]:
            words = " and ".join(changes)
            put = given(last, f"what {words} put here", float(array[index]))
            return f"changed: {words}", put, None, f"it was {float(before[index]):.6g}"
        if address.place == MASK:
            call = self.run.calls[address.number]
            return "ops.attention", mask(self.run, call, index), ops.attention, ""
        if name.endswith(INPUT) and before is not None:  # an entry that was not changed
            array = before
        step, place = self._explainer.maker(array, index)
        made = None if step is None else self._explainer.line(step, "y", place)
        if step is None or made is None:
            return self._unknown(array, step)
        if place is not index:  # it was moved since: k[n,h,t,c] = y[n,t,j] = …
            made = replace(made, result=f"{last}[{'n,h,t,c' if array.ndim == 4 else 'n,t,i'}] = {made.result}")
        return step.op, made, step.call.function, ""

    @cached_property
    def _loss(self) -> Formula:
        return loss(self._explainer.value, self.run)  # of all logits, once

    def _unknown(self, array: Array, step: Step | None) -> tuple[str, None, Callable[..., Any] | None, str]:
        """Return what can be said of a value whose op is not in the table."""
        if step is not None:
            return step.op, None, step.call.function, f"computed by {step.op}, which has no formula here"
        address = self.graph.address(array)
        assert address is not None
        parent = self.run.calls[address.number].parent
        if parent is None:
            return "the model", None, None, "put together between two calls, in lines that have no formula here"
        return parent.name, None, parent.function, f"computed in the lines of {parent.name}, which have no formula here"

    def _read(self, array: Array) -> list[str]:
        """Return the names of what an unknown step read."""
        step = self.graph.maker(array)
        names = [] if step is None else [self.graph.name(one) for one in step.inputs.values()]
        return [name for name in names if name is not None]

    # --- gradients ---------------------------------------------------------------------------------------------------

    def _of_gradient(self, name: str, array: Array, index: Index) -> Card:
        """Return the card of a gradient: what every reader of the value sends back."""
        value, reason = self._gradient(name, index)
        if value is None:
            raise ConfigError(f"{name} has no gradient", hint=reason)
        readers = self._explainer.readers(name, array, index, value)
        made = summed(name, readers)
        return Card(
            name, index, _axes(name, array), array.shape, value, "gradient",
            readers[0].op if len(readers) == 1 else "the sum over all of its uses", made,
            _differs(made, value, self.run.logits),
            feeds=self._below(array), also=[other for other in self.graph.names(array) if other != name],
            readers=readers if len(readers) > 1 else [],
            source={"forward": readers[0].undoes, "backward": readers[0].source},
            gradient=value, reason=f"the gradient of {value_of(self.of)}",
        )  # fmt: skip

    def _gradient(self, name: str, index: Index) -> tuple[float | None, str]:
        """Return the gradient of an entry, or why there is none."""
        if name == LOSS_NAME:
            return (1.0, "") if isinstance(self.of, Loss) else (None, f"{value_of(self.of)} does not depend on it")
        found, missing = self._searched
        if found is None:
            return None, missing
        if name in self._params:
            return float(found.param(name)[index]), ""
        if name in found:
            return float(found[name][index]), ""
        real = name in self.run and self.run.addresses[name].place != MASK
        return None, "no parameter changes it, so nothing is sent back" if real else "it is no real number"

    # --- what is around ----------------------------------------------------------------------------------------------

    def _feeds(self, name: str, array: Array) -> list[str]:
        """Return the names of what was computed from an array."""
        if name in self.run and self.run.addresses[name].place == MASK:
            return [f"{name.removesuffix(MASK)}weights"]
        if name not in self.run and name not in self._params:
            ids = [step for step in self.graph.all() if step.settings.get("ids") is array]
            return [self.graph.name(step.output) or step.op for step in ids]
        last = [LOSS_NAME] if array is self.run.logits and self.run.batch.targets is not None else []
        return [*dict.fromkeys(self.graph.fed(array)), *last]

    def _below(self, array: Array) -> list[str]:
        """Return the names of what a gradient goes on to: what the value was made from."""
        step = self.graph.maker(array)
        names: list[str] = []
        for one in () if step is None else step.inputs.values():
            name = self.graph.name(one)
            names += self._below(one) if name is None else [name]
        return list(dict.fromkeys(names))


def _typical(array: Array) -> Index:
    """Return the index of the largest entry among the last ones of the second axis."""
    last = np.abs(array[:, -1:] if array.ndim > 1 else array)
    index = [int(part) for part in np.unravel_index(int(np.argmax(last)), last.shape)]
    return tuple(index if array.ndim < 2 else [index[0], array.shape[1] - 1, *index[2:]])


def _differs(made: Formula | None, value: float, logits: Array) -> str:
    """Return a note where a formula does not give the number that is there."""
    if made is None:
        return ""
    again = made.number()
    size = max(abs(value), made.scale())
    near = TOLERANCE.get(logits.dtype.name, 1e-9)
    if abs(again - value) <= near * size or again == value or (np.isnan(again) and np.isnan(value)):
        return ""
    return f"the formula gives {again:.6g}: something on the way was changed, or is computed otherwise"


def _axes(name: str, array: Array) -> list[str]:
    words = axes_of(name, array.ndim)
    return words if len(words) == array.ndim else [f"axis {number}" for number in range(array.ndim)]


def _checked(name: str, index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an index of numbers from zero on; refuse one of other axes, or outside."""
    try:
        place = tuple(map(operator.index, index))
    except TypeError:
        fact = f"the index {index!r} is no tuple of whole numbers"
        raise ConfigError(fact, hint=f"{name} has the shape {shape}") from None
    if len(place) != len(shape):
        fact = f"{name} has {len(shape)} axes, the index {place} has {len(place)}"
        raise ConfigError(fact, hint=f"its shape is {shape}")
    for axis, (part, size) in enumerate(zip(place, shape, strict=True)):
        if not -size <= part < size:
            hint = f"it has {size}, from 0 to {size - 1}: shape {shape}"
            raise LengthError(f"{name} has no entry {part} on axis {axis}", hint=hint)
    return tuple(part % size for part, size in zip(place, shape, strict=True))
