"""The backward pass of a run that keeps block checkpoints: block by block, each run forward again, then back.

Only the gradients that enter and leave each block are kept. Those inside a block, of its parameters as well, are
computed again when they are asked for.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..arrays import Array
from ..quantized import Quantized
from ..tree import flatten
from .block_checkpoints import PARAMS, Store, block_of, bytes_of, free_calls, is_block
from .packed import unpacked
from .pairing import Pairs, pairs
from .run import Run
from .shape_dtype import Placeholders, ShapeDtype
from .tracing import Call, TracingEngine, run_traced


class Rules(Protocol):
    """What changes do with the calls of a backward pass."""

    def before(self, call: Call) -> None: ...

    def after(self, call: Call) -> None: ...


BACK = ".run_block_backward"
RECORD = 2
"""Where the record stands among the arguments of a block's backward, behind its stack and its parameters."""


def back_of(call: Call) -> Call | None:
    """Return the backward pass of a block that a call is or was made in, None for one outside of all."""
    own: Call | None = call
    while own is not None and not own.name.endswith(BACK):
        own = own.parent
    return own


class CheckpointedBackward:
    """Keeps block checkpoints of a backward pass.

    undoing   the call of the backward pass by the number of the call of the forward pass that it undoes
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.undoing: Pairs = {}
        self._blocks = {id(call.outputs[1]): call for call in run.calls if is_block(call)}
        self._store = Store()
        self._calls: list[Call] = []
        self._rules: Rules | None = None

    def watch(self, engine: TracingEngine) -> TracingEngine:
        """Let an engine keep block checkpoints alone."""
        before, after = engine.before, engine.after
        stored: dict[int, tuple[Any, ...]] = {}

        def unpack(call: Call) -> None:
            if call.name.endswith(BACK) or _reads_packed(call):
                stored[call.number] = call.arguments
                call.arguments = self._with_numbers(call)
            if before is not None:
                before(call)

        def let_go(call: Call) -> None:
            if after is not None:
                after(call)
            if call.number in stored:
                self._let_go(engine.calls[call.number :], stored.pop(call.number))

        engine.before, engine.after = unpack, let_go
        return engine

    def _with_numbers(self, call: Call) -> tuple[Any, ...]:
        """Return the arguments of a backward with what its forward kept, and with weights unpacked."""
        if not call.name.endswith(BACK):
            dy, saved, *rest = call.arguments
            return (dy, unpacked(saved), *rest)
        block = self.run.call(self._blocks[id(call.arguments[RECORD])].number)
        stack, _, _, *rest = call.arguments
        return (stack, block.arguments[PARAMS], block.outputs[1], *rest)

    def _let_go(self, calls: list[Call], stored: tuple[Any, ...]) -> None:
        """Keep of a backward what it was given and what it handed on; of a block, no gradients of its parameters."""
        own, placeholders, is_back = calls[0], Placeholders(), calls[0].name.endswith(BACK)
        if is_back:
            block = self._blocks[id(stored[RECORD])]
            forward = [self.run.call(number) for number in range(block.number, block.end)]
            self.undoing.update(pairs(forward, calls))
        for part, instead in zip(own.arguments, stored, strict=True):
            placeholders.keep(part, instead)
        handed = own.outputs[0] if is_back else own.result
        placeholders.keep(handed, handed)
        free_calls(calls, placeholders)

    def pairs(self, calls: list[Call]) -> Pairs:
        """Return which call of a finished backward pass undoes which, inside of blocks and outside."""
        outside = [call for call in self.run.calls if is_block(call) or block_of(call) is None]
        back = [call for call in calls if call.name.endswith(BACK) or back_of(call) is None]
        return {**pairs(outside, back), **self.undoing}

    def finish(self, calls: list[Call], rules: Rules | None) -> None:
        """Note all calls of the backward pass, and what changes do with them, for when a block runs again."""
        self._calls, self._rules = calls, rules

    def call(self, call: Call) -> Call:
        """Return a call of the backward pass with its numbers; where they are not kept, its block runs again."""
        back = back_of(call)
        if back is None:
            return call
        needed = bytes_of(self._calls[back.number : back.end])
        return self._store.get(back, needed, lambda: self._run_again(back))[call.number - back.number]

    def _run_again(self, back: Call) -> list[Call]:
        engine = TracingEngine(calls=self._calls[: back.number], _inside=back.parent)
        if self._rules is not None:
            engine.before, engine.after = self._rules.before, self._rules.after
        run_traced(back.function, *self._with_numbers(back), engine=engine)
        return engine.calls[back.number :]

    def param(self, placeholder: ShapeDtype) -> Array:
        """Return the gradient of a parameter of a block, for the placeholder that stands for it."""
        for call in self._calls:
            if call.name.endswith(BACK):
                for name, own in flatten(call.outputs[1]).items():
                    if own is placeholder:
                        return flatten(self.call(call).outputs[1])[name]
        raise AssertionError("every placeholder is of one block")


def _reads_packed(call: Call) -> bool:
    """Tell whether the backward of an op outside of blocks was handed weights in blocks of bits."""
    return call.name in ("linear_backward", "embedding_backward") and any(
        isinstance(part, Quantized) for part in call.arguments[1]
    )
