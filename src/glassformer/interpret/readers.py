"""What every reader of a value sends back to it: the parts of which its gradient is the sum.

The stream is read by a sublayer and by the sum behind it, what a norm returned by three matrices, a tied table by the
embedding and by the head. Each sends back what its own backward says, and the value gets all of it.
"""

from __future__ import annotations

from .. import ops
from ..arrays import Array
from .card import Reader
from .formula import Formula, Index, Operand
from .formulas import TABLE, GradientReader
from .formulas.operands import Made, nothing, plain
from .formulas.targets import LOSS_GRADIENT, LOSS_NAME, of_logits, of_value, value_of
from .gradients import Gradients, Loss, Target
from .graph import MOVES, Graph, Step, moved
from .lines import Source, source_of

NEAR = 1e-9
"""What is left beside the largest part counts as rounding up to here."""


class Readers:
    """All that send something back, for the gradients of one target."""

    def __init__(self, graph: Graph, made: Made, found: Gradients, target: Target) -> None:
        self.operands, self.graph, self.target = GradientReader(graph, made, found, self._sent_to), graph, target

    def of(self, name: str, array: Array, index: Index, value: float) -> list[Reader]:
        """Return what every reader sends back to an entry whose gradient is `value`."""
        if name == LOSS_NAME:
            return [Reader("the target", "the target", Formula("dloss", "one", {"one": plain("1", 1.0)}))]
        sent = [self._sent(step, role, index) for step, role in self._readers(array)]
        sent += self._asked(name, array, index)
        if self.graph.open or not sent:
            sent += self._rest(value, sent)
        return sent

    def source(self, name: str, array: Array, index: Index, value: float) -> Source | None:
        """Return the lines that computed a gradient, of several readers those of the first."""
        readers = self._readers(array)
        return self._sent(*readers[0], index).source if readers else self.of(name, array, index, value)[0].source

    def _readers(self, array: Array) -> list[tuple[Step, str]]:
        """Return the readers of an array, the sum along the stream first."""
        return sorted(self.graph.readers(array), key=lambda one: one[0].rule != "add")

    def _sent_to(self, array: Array, index: Index) -> Formula:
        """Return the gradient of an entry of an array without a name."""
        return summed("y", [self._sent(step, role, index) for step, role in self.graph.readers(array)])

    def _asked(self, name: str, array: Array, index: Index) -> list[Reader]:
        """Return what the target itself says of an entry."""
        run, op, source = self.graph.run, "the target", None
        if isinstance(self.target, Loss):
            op, source = "ops.cross_entropy_backward", source_of(ops.cross_entropy_backward, LOSS_GRADIENT)
        made = [of_value(run, self.target, name, index)]
        if array is run.logits:
            made.append(of_logits(self.operands, run, self.target, index))
        return [Reader(f"of {value_of(self.target)}", op, one, source) for one in made if one is not None]

    def _sent(self, step: Step, role: str, index: Index) -> Reader:
        """Return what one reader sends back; one that only moves entries without a name hands on what others send."""
        while step.rule in MOVES and self.graph.name(step.output) is None:
            after = self.graph.readers(step.output)
            if len(after) != 1:
                break
            index = moved(step, index)
            step, role = after[0]
        row = TABLE.get(step.rule)
        if row is not None and row.backward is not None:
            made = row.backward(self.operands, step, role, index)
        else:
            made = self._said(step, role, index)
        call = self.operands.found.undoing.get(step.call.number)
        source = None if call is None else source_of(call.function, made.lines)
        undoes = source_of(step.call.function)
        return Reader(self._label(step, role), _backward_name(step), made, source, undoes)

    def _said(self, step: Step, role: str, index: Index) -> Formula:
        """Return what an op that is not in the table sent back, by its own word."""
        gradient = self.operands.said(step, role)
        number = 0.0 if gradient is None else float(gradient[index])
        return Formula(f"d{role}", "said", {"said": plain(f"what {_backward_name(step)} returned", number)})

    def _rest(self, value: float, sent: list[Reader]) -> list[Reader]:
        """Return what comes back through registered layers: the part of the gradient that is left."""
        numbers = [reader.made.number() for reader in sent]
        rest = value - sum(numbers)
        if sent and abs(rest) <= NEAR * max(abs(value), *map(abs, numbers)):
            return []
        if not rest:
            return [Reader("nothing", "nothing reads it", nothing("dx", "nothing reads it"))]
        where = ", ".join(sorted(self.graph.open)) or "the model"
        made = Formula("rest", "rest", {"rest": plain(f"what comes back through lines of {where}", rest)})
        return [Reader(f"through lines of {where}", where, made)]

    def _label(self, step: Step, role: str) -> str:
        """Say which way a part of a gradient comes."""
        ahead = next(iter(self.graph.fed_by(step)), step.op)
        if step.rule != "add" or role != "x":
            return f"through {ahead}"
        beside = [self.graph.name(array) for own, array in step.inputs.items() if own != "x"]
        return f"past {' and '.join(name for name in beside if name)}, from {ahead}"


def _backward_name(step: Step) -> str:
    return step.op.removesuffix("forward") + "backward" if step.call.is_method else f"{step.op}_backward"


def summed(name: str, readers: list[Reader]) -> Formula:
    """Return the gradient as the sum of what readers send back; of one alone, its own formula."""
    if len(readers) == 1:
        return readers[0].made
    operands = {f"r{number}": Operand(reader.label, reader.made) for number, reader in enumerate(readers)}
    lines = next((reader.made.lines for reader in readers), "")
    return Formula(f"d({name})", " + ".join(operands), operands, lines)
