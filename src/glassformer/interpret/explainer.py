"""The formulas of entries and of their gradients: the lines of the table, filled with the numbers of a run.

The gradient of a value is the sum of what its readers send back. The stream is read by a sublayer and by the sum behind
it, what a norm returned by three matrices, a tied table by the embedding and by the head.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..ops import FULL, IGNORE
from .card import Reader, Source, source_of
from .formula import Formula, Index, Link, Operand, Symbol, fill, given
from .formulas import SOFTMAX, TABLE, formula_of
from .gradients import Gradients, Logit, Loss, Sum, Target, undo_changes
from .graph import MOVES, Graph, Step, moved, moved_back
from .names import INPUT, MASK, RETURNED, Address
from .run import Run
from .tracing import Call

Read = Callable[[str, Array, Index], Operand]
LOSS_NAME = "loss"
LOSS_GRADIENT = "p * total_a - a"
"""The line of `cross_entropy_backward` that makes the gradient of the logits."""
NEAR = 1e-9
"""What is left beside the largest part counts as rounding up to here."""


class Explainer:
    """The steps of a run, and the numbers of its arrays and gradients with where they stand.

    gradients, target   returns the gradients, when one is to be explained, and what they are of
    """

    def __init__(self, graph: Graph, gradients: Callable[[], Gradients | None], target: Target) -> None:
        self.graph, self._gradients, self.target = graph, gradients, target

    @property
    def found(self) -> Gradients:
        """The gradients, which whoever asks about one has."""
        return cast(Gradients, self._gradients())

    # --- values ------------------------------------------------------------------------------------------------------

    def maker(self, array: Array, index: Index) -> tuple[Step | None, Index]:
        """Return the step that made an entry; for one that was only moved, and had no name before, the one before."""
        step = self.graph.maker(array)
        while step is not None and step.rule in MOVES:
            x = step.inputs["x"]
            before = self.graph.maker(x)
            if self.graph.name(x) is not None or before is None:
                break
            step, index = before, moved_back(step, index)
        return step, index

    def made(self, array: Array, index: Index) -> Formula | None:
        """Return what an entry is made of, None where that is not known."""
        step, index = self.maker(array, index)
        return None if step is None else self.line(step, "y", index)

    def line(self, step: Step, role: str, index: Index) -> Formula | None:
        """Return how a step made an entry, or what it sends back to one that has a role there; None if not known."""
        row = TABLE.get(step.rule, {})
        if role not in row:
            return None
        line = row[role]
        changed = any(self.original(one) is not one for one in step.inputs.values())
        other, letters = (int(changed), None) if line.choose is None else line.choose(step, index)
        text = formula_of(step, role, line.other if other and line.other else line.formula)
        return fill(text, self._symbols(step, row["y"].formula.partition("[")[0]), index, letters, line.source)

    def original(self, array: Array) -> Array:
        """Return an array as it was computed, before it was changed."""
        address = self.graph.address(array)
        return array if address is None else self.graph.run.originals.get(address, array)

    def value(self, text: str, array: Array, index: Index) -> Operand:
        """Return entries of an array."""
        name, place = self.graph.found(array, index)
        inner = None if name is not None else lambda number: self.made(array, _one(index, number))
        return Operand(text, array[index], name, place, inner=inner)

    def gradient(self, text: str, array: Array, index: Index) -> Operand:
        """Return entries of the gradient of an array, as the step that made it was handed it."""
        name, place = self.graph.found_ahead(array, index)
        if name is None:
            name, place = self.graph.found(array, index)
        address = self.graph.address(array)
        handed = None if address is None else self.found.handed(address)
        values = np.zeros(np.broadcast_shapes(*map(np.shape, index))) if handed is None else handed()[index]

        def inner(number: int) -> Formula:
            return summed("y", [self._sent(*one, _one(index, number)) for one in self.graph.readers(array)])

        return Operand(text, values, name, place, gradient=True, inner=inner if name is None else None)

    def _gradient_before(self, text: str, array: Array, index: Index) -> Operand:
        """Return the gradient that passes through the changes of a statistic, back to what was computed there."""
        address, run = self.graph.address(array), self.graph.run
        assert address is not None
        place = self.found.place(address)
        assert place is not None, "every statistic of a norm has a gradient"
        changes = [change for change in run.changes if run.addresses.get(change.name) == address]
        gradient = undo_changes(run, address, changes, place())
        return Operand(text, gradient[index], self.graph.name(array), index, gradient=True)

    def _symbols(self, step: Step, result: str) -> Callable[[str], Any]:
        """Return what the symbols of a formula stand for in a step whose result has such a symbol."""
        inputs, settings = step.inputs, step.settings

        def find(name: str) -> Any:
            if name in inputs:
                return Symbol(inputs[name], self.value)
            if name == result:
                return Symbol(self.original(step.output), self.value)
            if name == f"d{result}":
                return Symbol(step.output, self.gradient)
            if name[:1] == "d" and name[1:] in inputs:
                return Symbol(inputs[name[1:]], self._gradient_before)
            if name[-1:] == "0":
                return Symbol(self.original(inputs[name[:-1]]), self.value)
            if name == "D":
                return step.output.shape[-1]
            found = settings.get(name)
            if found is None:
                saved = settings.get("saved")
                found = 1 / math.sqrt(inputs["q"].shape[-1]) if name == "scale" else getattr(saved, name, saved)
            return Symbol(found, self.value) if isinstance(found, np.ndarray) else found

        return find

    # --- gradients ---------------------------------------------------------------------------------------------------

    def readers(self, name: str, array: Array, index: Index, value: float) -> list[Reader]:
        """Return what every reader sends back to an entry whose gradient is `value`."""
        if name == LOSS_NAME:
            return [Reader("the target", "the target", given("dloss", "1", 1.0))]
        sent = [self._sent(step, role, index) for step, role in self._readers(name, array)]
        sent += [*self._past_changes(name, array, index), *self._asked(name, array, index)]
        if self.graph.open or not sent:
            sent += self._rest(value, sent)
        return sent

    def source(self, name: str, array: Array, index: Index, value: float) -> Source | None:
        """Return the lines that computed a gradient, of several readers those of the first."""
        readers = self._readers(name, array)
        return self._sent(*readers[0], index).source if readers else self.readers(name, array, index, value)[0].source

    def _readers(self, name: str, array: Array) -> list[tuple[Step, str]]:
        """Return the readers of an array, the sum along the stream first; of an input, its own reader."""
        readers = sorted(self.graph.readers(array), key=lambda one: one[0].rule != "add")
        if not name.endswith(INPUT):
            return readers
        return [one for one in readers if one[0].call.number == self.graph.run.addresses[name].number]

    def _past_changes(self, name: str, array: Array, index: Index) -> list[Reader]:
        """Return what comes back from readers for which alone the array was changed."""
        places = [] if name.endswith(INPUT) else [*self.graph.run.originals.items()]
        found = [(at, self.found.handed(at)) for at, one in places if one is array and at.place != RETURNED]
        return [
            Reader("through a change", "a change", given("dx", "what passes the change", float(handed()[index])))
            for at, handed in found
            if handed is not None
        ]

    def _asked(self, name: str, array: Array, index: Index) -> list[Reader]:
        """Return the gradient of the target itself for an entry."""
        run, op, source = self.graph.run, "the target", None
        if isinstance(self.target, Loss):
            op, source = "ops.cross_entropy_backward", source_of(ops.cross_entropy_backward, LOSS_GRADIENT)
        made = [of_value(run, self.target, name, index)]
        if array is run.logits:
            made.append(of_logits(self.value, run, self.target, index))
        return [Reader(f"of {value_of(self.target)}", op, one, source) for one in made if one is not None]

    def _sent(self, step: Step, role: str, index: Index) -> Reader:
        """Return what one reader sends back; one that only moves entries without a name hands on what others send."""
        while step.rule in MOVES and self.graph.name(step.output) is None:
            after = self.graph.readers(step.output)
            if len(after) != 1:
                break
            index = moved(step, index)
            step, role = after[0]
        made = self.line(step, role, index) or self._returned(step, role, index)
        call = self.found.undoing.get(step.call.number)
        source = None if call is None else source_of(call.function, made.lines)
        return Reader(self._label(step, role), _backward_name(step), made, source, source_of(step.call.function))

    def _returned(self, step: Step, role: str, index: Index) -> Formula:
        """Return what the backward of an op that is not in the table returned for one of its arrays."""
        places = [place for place, array in enumerate(step.call.arguments) if array is step.inputs[role]]
        handed = self.found.handed(Address(step.call.number, places[0])) if places else None
        number = 0.0 if handed is None else float(handed()[index])
        return given(f"d{role}", f"what {_backward_name(step)} returned", number)

    def _rest(self, value: float, sent: list[Reader]) -> list[Reader]:
        """Return what comes back through registered layers: the part of the gradient that is left."""
        numbers = [reader.made.number() for reader in sent]
        rest = value - sum(numbers)
        if sent and abs(rest) <= NEAR * max(abs(value), *map(abs, numbers)):
            return []
        if not rest:
            return [Reader("nothing", "nothing reads it", given("dx", "0, for nothing reads it", 0.0))]
        where = ", ".join(sorted(self.graph.open)) or "the model"
        made = given("rest", f"what comes back through lines of {where}", rest)
        return [Reader(f"through lines of {where}", where, made)]

    def _label(self, step: Step, role: str) -> str:
        """Return in words which way a part of a gradient comes."""
        ahead = next(iter(self.graph.fed_by(step)), step.op)
        return f"unchanged through the sum, from {ahead}" if (step.rule, role) == ("add", "x") else f"through {ahead}"


def _backward_name(step: Step) -> str:
    return step.op.removesuffix("forward") + "backward" if step.call.is_method else f"{step.op}_backward"


def summed(name: str, readers: list[Reader]) -> Formula:
    """Return the gradient as the sum of what readers send back; of one alone, its own formula."""
    if len(readers) == 1:
        return readers[0].made
    operands = {f"r{number}": reader.operand for number, reader in enumerate(readers)}
    lines = next((reader.made.lines for reader in readers), "")
    return Formula(f"d({name})", " + ".join(operands), operands, lines)


def _one(index: Index, number: int) -> Index:
    """Return the index of one of several entries."""
    return tuple(part if np.ndim(part) == 0 else int(part[number]) for part in index)


# --- the number that gradients are of, and the mask -------------------------------------------------------------------


def loss(read: Read, run: Run) -> Formula:
    """Σ (log Σ_v exp(logits) − logits[target]) / count, over the positions that have a target."""
    targets = np.asarray(run.targets)
    row = np.nonzero(targets != IGNORE)
    if not row[0].size:
        return given("loss", "0, for no position has a target", 0.0, "xp.sum(losses)")
    letters = "nt"[: targets.ndim]
    at = ",".join(letters)
    rows = np.asarray(run.logits[row], dtype=np.float64)
    largest = rows.max(axis=-1)
    log_sums = largest + np.log(np.exp(rows - largest[:, None]).sum(axis=-1))
    symbols = {
        "log_sum": Operand(f"(log Σ_v exp logits[{at},v])", log_sums),
        "logits": Symbol(run.logits, read),
        "targets": Symbol(targets, read),
        "count": row[0].size,
    }
    line = f"loss = sum((log_sum - logits[{at},targets[{at}]]) / count, {at})"
    return fill(line, symbols.__getitem__, (), dict(zip(letters, row, strict=True)), "xp.sum(losses)")


def of_logits(read: Read, run: Run, target: Target, index: Index) -> Formula | None:
    """Return the gradient of a target for a logit, None for a target that is not of logits."""
    if isinstance(target, Logit):  # 1 for the one that is asked about, −1 for the one it is compared with
        result = "dlogits[n,t,v]" if len(index) == 3 else "dlogits[n,v]"
        return given(result, "asked", float(target.seed(run)[0][tuple(index)]))
    if not isinstance(target, Loss):
        return None
    *row, v = index
    targets = np.asarray(run.targets)
    at = ",".join("nt"[: targets.ndim])
    hit = int(targets[tuple(row)])
    if hit == IGNORE:
        return given(f"dlogits[{at},v]", "0, for the position has no target", 0.0, LOSS_GRADIENT)
    symbols = {
        "logits": Symbol(run.logits, read),
        "hit": Operand(f"[v = targets[{at}]]", float(hit == v)),
        "count": np.sum(targets != IGNORE),
    }
    line = f"dlogits[*,v] = ({SOFTMAX.format('logits', 'v')} - hit) / count".replace("*,", f"{at},")
    made = fill(line, symbols.__getitem__, index, source=LOSS_GRADIENT)
    return replace(made, also=(Link("targets", tuple(int(one) for one in row)),))


def of_value(run: Run, target: Target, name: str | None, index: Index) -> Formula | None:
    """Return the direct gradient of a target for a value: the weight of an entry in a sum."""
    if not isinstance(target, Sum) or name is None or target.change.name not in run.addresses:
        return None
    if run.addresses[target.change.name] != run.addresses.get(name):
        return None
    weights = target.change.apply(np.zeros(run[name].shape), run.heads)
    return given("weight", "weight", float(weights[tuple(index)]))


def value_of(target: Target) -> str:
    """Return what a target is called."""
    if isinstance(target, Loss):
        return "loss"
    if isinstance(target, Logit):
        against = "" if target.against is None else f" − logit {target.against}"
        return f"logit {target.token}{against} of example {target.example} at {target.position}"
    return f"the sum of {target.change.name}"


def mask(run: Run, call: Call, index: Index) -> Formula:
    """mask[n,h,t,s] = pattern[t,s] · real[n,s], of a softmax in attention; one where there is neither."""
    n, _, t, s = index
    outer = call.parent
    padding = None if outer is None else outer.settings.get(MASK)
    pattern = FULL if outer is None else outer.settings.get("pattern", FULL)
    scores = call.arguments[0]
    operands = {}
    if not pattern.is_full:
        operands["pattern"] = Operand("pattern[t,s]", float(pattern.dense(*scores.shape[-2:])[t, s]))
    if padding is not None:
        real = bool(np.broadcast_to(padding, scores.shape)[index])
        masks = [(own, getattr(run.batch, own)) for own in (MASK, "source_mask")]
        name = next((own for own, one in masks if one is not None and np.may_share_memory(one, padding)), None)
        operands["real"] = Operand("mask[n,s]", float(real), name, (n, s) if name else ())
    if not operands:
        operands["all"] = Operand("1, for nothing is hidden", 1.0)
    return Formula("mask[n,h,t,s]", " * ".join(operands), operands, "mask & allowed")
