"""The graph of a run, read from its op calls: which step made each array, and which steps read it.

An op is a step, attention three of them: scores, softmax, and the mixture of the values.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.tree import flatten
from ..ops import ACTIVATIONS
from .names import LOGITS, RETURNED, Address, is_real
from .run import Run
from .tracing import Call, argument_name


@dataclass(frozen=True, eq=False)
class Step:
    """One array, computed from others.

    rule       the row of the tables of formulas that says how
    call       the op, or the method of a registered layer
    inputs     what it read, by the name that it has there
    folded     which of these get their gradient with another step's
    """

    rule: str
    call: Call
    output: Array
    inputs: dict[str, Array]
    settings: dict[str, Any] = field(default_factory=dict)
    folded: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The name of the op, or of the method."""
        return self.call.name if self.call.is_method else f"ops.{self.call.name}"


MOVES = ("split_heads", "merge_heads")
"""Steps that only move numbers."""


def moved(step: Step, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return where an entry of x stands in what the step made of it."""
    return _moved(step, index, step.rule == "split_heads")


def moved_back(step: Step, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return where an entry of the result stood in x."""
    return _moved(step, index, step.rule == "merge_heads")


def _moved(step: Step, index: tuple[Any, ...], splits: bool) -> tuple[Any, ...]:
    """Return (n, t, h·C + c) as (n, h, t, c), or the other way."""
    channels = (step.output if step.rule == "split_heads" else step.inputs["x"]).shape[-1]
    if splits:
        *lead, position, feature = index
        return (*lead, feature // channels, position, feature % channels)
    *lead, head, position, channel = index
    return (*lead, position, head * channels + channel)


NORMS = {"layer_norm": "rstd", "rms_norm": "rrms"}
UNKNOWN = "unknown"


class Graph:
    """The steps of a run, found once.

    params   the parameters by name
    inputs   the parts of the batch by name
    open     registered layers, which may compute by other means than ops
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.params: dict[str, Array] = flatten(run.params)
        self.inputs = {name: np.asarray(part) for name, part in run.batch._asdict().items() if part is not None}
        self._makers: dict[int, Step] = {}
        self._readers: dict[int, list[tuple[Step, str]]] = {}
        self._uses: dict[int, list[Step]] = {}  # those too whose gradient comes with another's
        self.open: set[str] = set()
        self._all_names: dict[int, list[str]] = {}
        self._names = self._named()
        self._places = find_places(run.calls)
        for step in map(self._untied, self._steps()):
            self._makers.setdefault(id(step.output), step)
            for role, array in step.inputs.items():
                self._uses.setdefault(id(array), []).append(step)
                if role not in step.folded:
                    self._readers.setdefault(id(array), []).append((step, role))

    def maker(self, array: Array) -> Step | None:
        """Return the step that made an array, None for one that was given."""
        return self._makers.get(id(array))

    def readers(self, array: Array) -> list[tuple[Step, str]]:
        """Return the steps that read an array, each with the role that it has there."""
        return self._readers.get(id(array), [])

    def address(self, array: Array) -> Address | None:
        """Return which call returned an array, or read it first."""
        return self._places.get(id(array))

    def name(self, array: Array) -> str | None:
        """Return the name of a value, a parameter or a part of the batch, None for an array without one."""
        return self._names.get(id(array))

    def names(self, array: Array) -> list[str]:
        """Return all names that an array goes by."""
        return self._all_names.get(id(array), [])

    def found(self, array: Array, index: tuple[Any, ...]) -> tuple[str | None, tuple[Any, ...]]:
        """Return the name of entries, and their index there; entries that were only moved have the name they had."""
        name, step = self.name(array), self.maker(array)
        if name is None and step is not None and step.rule in MOVES:
            return self.found(step.inputs["x"], moved_back(step, index))
        return name, index

    def found_ahead(self, array: Array, index: tuple[Any, ...]) -> tuple[str | None, tuple[Any, ...]]:
        """Return the name of entries, or the one that they have once they were moved."""
        name, readers = self.name(array), self.readers(array)
        if name is None and len(readers) == 1 and readers[0][0].rule in MOVES:
            step = readers[0][0]
            return self.found_ahead(step.output, moved(step, index))
        return name, index

    def fed(self, array: Array) -> Iterator[str]:
        """Return the names of what was computed from an array; for values without one, of what these feed."""
        for step in self._uses.get(id(array), []):
            yield from self.fed_by(step)

    def fed_by(self, step: Step) -> Iterator[str]:
        """Return the name of what a step made, or the names of what that feeds."""
        name = self.name(step.output)
        if name is not None:
            yield name
        elif id(step.output) in self._uses:
            yield from self.fed(step.output)
        else:
            yield step.op

    def _named(self) -> dict[int, str]:
        """Return the shortest name of each array: of what a layer returned, its own name."""
        for name, address in self.run.addresses.items():
            if not isinstance(address.place, str):
                self._all_names.setdefault(id(self.run[name]), []).append(name)
        shortest = {array: min(own, key=lambda name: (name.endswith("blocks"), len(name)))  # a block's, not the list's
                    for array, own in self._all_names.items()}  # fmt: skip
        if LOGITS in self.run.addresses:  # not of a model that makes vectors and predicts nothing
            shortest[id(self.run.logits)] = LOGITS
        return shortest | {id(array): name for name, array in {**self.params, **self.inputs}.items()}

    def all(self) -> Iterator[Step]:
        """Return all steps that made something."""
        return iter(self._makers.values())

    def _steps(self) -> Iterator[Step]:
        children: dict[int, list[Call]] = {}
        for call in self.run.calls:
            if call.parent is not None:
                children.setdefault(call.parent.number, []).append(call)
        for call in self.run.calls:
            y = call.outputs[0]
            if any(y is part for part in call.arguments):
                continue  # what hands back its own argument made nothing
            if call.is_method and not _is_ours(call) and call.name.endswith(".forward"):
                # A registered layer may compute its result by other means than ops.
                self.open.add(call.name)
                if isinstance(y, np.ndarray) and self._places.get(id(y)) == Address(call.number, RETURNED):
                    yield Step(UNKNOWN, call, y, _arrays(call.arguments[2:], call.settings))
            elif not call.is_method and isinstance(y, np.ndarray) and (call.parent is None or call.parent.is_method):
                yield from _of_op(call, children.get(call.number, []))

    def _untied(self, step: Step) -> Step:
        """Return a product by a table turned over, as a tied head has it, as one that reads the table."""
        w = step.inputs.get("w") if step.rule == "linear" else None
        table = getattr(w, "base", None)
        if w is None or self.name(w) is not None or self.name(table) not in self.params:
            return step
        bias = {role: x for role, x in step.inputs.items() if role == "b"}
        return replace(step, rule="tied_linear", inputs={"x": step.inputs["x"], "table": table, **bias})


def find_places(calls: list[Call]) -> dict[int, Address]:
    """Return the first call that returned an array, the innermost; for a given one, the first that read it."""
    places: dict[int, Address] = {}
    for call in reversed(calls):
        for place, value in reversed([*enumerate(call.arguments)]):
            if is_real(value):
                places[id(value)] = Address(call.number, place)
    for call in sorted(calls, key=lambda one: (-one.end, one.number)):
        y = call.outputs[0]
        if is_real(y) and not any(y is part for part in call.arguments):  # rather than handed back
            places[id(y)] = Address(call.number, RETURNED)
    return places


def _is_ours(call: Call) -> bool:
    """Return whether an op or a layer is of this package, rather than a registered one of the same name."""
    return call.function.__module__.partition(".")[0] == __package__.partition(".")[0]


def _arrays(arguments: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Array]:
    """Return the arrays of real numbers among arguments."""
    named = {**{str(place): value for place, value in enumerate(arguments)}, **settings}
    return {name: value for name, value in named.items() if isinstance(value, np.ndarray) and value.dtype.kind in "fc"}


def _of_op(call: Call, inner: list[Call]) -> Iterator[Step]:
    """Return the steps of an op; of one that is not known, that it made its result from its arrays."""
    y, named = call.outputs[0], {argument_name(call, place): value for place, value in enumerate(call.arguments)}
    given = defaultdict(lambda: None, {**named, **call.settings})  # by the names in its signature
    names = [name for name, (forward, _) in ACTIVATIONS.items() if forward is call.function]
    axes = np.ndim(next(iter(given.values()), 0))
    if names:
        yield Step("activation", call, y, {"x": call.arguments[0]}, {"activation": names[0]})
    elif call.name in OPS and _is_ours(call) and axes == AXES.get(call.name, axes):
        yield from OPS[call.name](call, given, inner)
    elif call.name in CONSTANTS and _is_ours(call):
        yield Step("constant", call, y, {})
    else:
        yield Step(UNKNOWN, call, y, _arrays(call.arguments, {}))


def _simple(call: Call, given: dict[str, Any], inner: list[Call]) -> Iterator[Step]:
    """Return an op that is one step; without roles of its own, a sum or a rearrangement of all its arrays."""
    roles = ROLES.get(call.name) or {name: name for name in list(given)[: len(call.arguments)]}
    inputs = {role: given[name] for role, name in roles.items() if given[name] is not None}
    record = {"saved": call.outputs[1]} if len(call.outputs) > 1 else {}
    yield Step(call.name, call, call.outputs[0], inputs, {**given, **record})


def _norm(call: Call, given: dict[str, Any], inner: list[Call]) -> Iterator[Step]:
    """Return a norm and its statistics; what these send back to x is part of the norm's own gradient."""
    inputs = {name: given[name] for name in ("x", "gamma", "beta") if given[name] is not None}
    x, root = inputs["x"], NORMS[call.name]
    read = {"x": x}
    if call.name == "layer_norm":
        inputs["mean"] = read["mean"] = inner[0].outputs[0]
        yield Step("mean", inner[0], read["mean"], {"x": x}, folded=("x",))
    last = inner[-1]  # behind the average of the squares
    inputs[root] = last.outputs[0]
    yield Step(root, last, last.outputs[0], read, dict(last.settings), folded=tuple(read))
    yield Step(call.name, call, call.outputs[0], inputs)


def _attention(call: Call, given: dict[str, Any], inner: list[Call]) -> Iterator[Step]:
    """Return the three lines of attention."""
    softmax = next(one for one in inner if one.name == "softmax")
    scores, weights = softmax.arguments[0], softmax.outputs[0]
    read = {name: given[name] for name in ("q", "k", "bias") if given[name] is not None}
    yield Step("scores", call, scores, read, {"scale": given["scale"]})
    yield Step("softmax", softmax, weights, {"scores": scores}, softmax.settings)
    settings = {"keep": call.outputs[1].keep, "rate": given["rate"] or 0.0}
    yield Step("mix", call, call.outputs[0], {"weights": weights, "v": given["v"]}, settings)


AXES = {"attention": 4, "mean_pool": 3}
"""How many axes the first array of an op has where its formula is known, if that is not all the same."""

ROLES: dict[str, dict[str, str]] = {
    "linear": {"x": "x", "w": "w", "b": "b"},
    "embedding": {"table": "table"},
    "relative_bias": {"table": "table"},
    "softmax": {"scores": "x"},
    "gated": {"gate": "gate", "up": "up"},
    "rotary": {"x": "x"},
    "mean_pool": {"x": "x"},
    "dropout": {"x": "x"},
}
"""What formulas call the arguments of ops that read more than a sum or a rearrangement does."""

CONSTANTS = (
    "alibi_bias", "astype", "positions", "prepend_true", "relative_buckets", "rotary_angles", "sinusoidal",
    "unpadded_positions", "zeros_like",
)  # fmt: skip
"""Ops of lengths, ids and masks: they read no values, and send nothing back."""

OPS: dict[str, Callable[[Call, dict[str, Any], list[Call]], Iterator[Step]]] = {
    "layer_norm": _norm,
    "rms_norm": _norm,
    "attention": _attention,
    **dict.fromkeys((*ROLES, "add", "scale", "copy", "split_heads", "merge_heads", "take_first", "prepend"), _simple),
}
"""The ops besides activations, each with the steps that it is."""
