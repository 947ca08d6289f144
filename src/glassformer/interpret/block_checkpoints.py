"""Runs that keep only block checkpoints, and run a block again when a value inside it is asked for.

    run = watch(model, params, batch, keep="block_checkpoints")
    run["blocks.3.attention.attend.weights"]      block 3 runs again, on what went into it

A run that keeps everything grows with layers · T²: at 1,024 tokens the weights and scores of attention alone are many
times the parameters. What goes into a block and comes out of it grows with T, and tells all the rest: the same lines on
the same numbers give the same bits. Freed arrays leave placeholders, so names, shapes and readers stay known.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..quantized import Quantized
from .intervention import Intervention, Placed
from .names import RETURNED
from .packed import unpacked
from .shape_dtype import Placeholders
from .tracing import Call, TracingEngine, run_traced

PARAMS = 1
"""Where the parameters stand among the arguments of a block, behind its stack, and of `linear`, behind x."""
INSIDE = 1 << 27
"""Bytes of blocks that were run again and are kept, unless one alone has more."""


def is_block(call: Call) -> bool:
    """Tell whether a call runs one block of a stack."""
    return call.name.endswith(".run_block")


def block_of(call: Call) -> Call | None:
    """Return the block that a call runs or was made in, None for one outside of all."""
    own: Call | None = call
    while own is not None and not is_block(own):
        own = own.parent
    return own


def unpack_in_time(engine: TracingEngine) -> dict[int, Any]:
    """Let an engine unpack parameters when they are needed: those of a block, or one matrix outside of blocks.

    Returned are those that were unpacked, as they are stored, by the number of the call: it fills while calls are made.
    """
    before = engine.before
    stored: dict[int, Any] = {}

    def unpack(call: Call) -> None:
        if is_block(call) or (call.name == "linear" and isinstance(call.arguments[PARAMS], Quantized)):
            first, stored[call.number], *given = call.arguments
            call.arguments = (first, unpacked(stored[call.number]), *given)
        if before is not None:
            before(call)

    engine.before = unpack
    return stored


def keep_block_checkpoints(engine: TracingEngine) -> TracingEngine:
    """Let an engine let go of what is inside a block as soon as that has run, and of weights that were unpacked."""
    after, stored = engine.after, unpack_in_time(engine)

    def let_go(call: Call) -> None:
        if after is not None:
            after(call)
        if call.number in stored:
            _free(engine.calls[call.number :], stored.pop(call.number))

    engine.after = let_go
    # What is inside a block is not there to be taken over: a block runs again from its first call on, or not at all.
    engine.again = lambda call: call.result if is_block(call) or block_of(call) is None else NotImplemented
    return engine


def _free(calls: list[Call], stored: Any) -> None:
    """Let go of the numbers in a call and in those made in it, but for what it was given and what it returned."""
    own, placeholders = calls[0], Placeholders()
    placeholders.keep(own.arguments[PARAMS], stored)
    for part in (own.arguments[0], *own.arguments[PARAMS + 1 :], own.outputs[0]):
        placeholders.keep(part, part)
    free_calls(calls, placeholders)


def free_calls(calls: list[Call], placeholders: Placeholders) -> None:
    """Put placeholders in the place of the arrays of calls."""
    for call in calls:
        call.arguments, call.settings, call.result = map(placeholders.of, (call.arguments, call.settings, call.result))


class Store:
    """The calls of the blocks asked for last, up to `most` bytes, those of one in any case."""

    def __init__(self, most: int = INSIDE) -> None:
        self.most = most
        self._found: OrderedDict[Call, list[Call]] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._found)

    def clear(self) -> None:
        """Let go of everything: it can be had again."""
        with self._lock:
            self._found.clear()

    def get(self, block: Call, needed: int, make: Callable[[], list[Call]]) -> list[Call]:
        """Return the calls of a block, made where they are not kept; they will take `needed` bytes."""
        with self._lock:
            if block not in self._found:
                self._make_room(needed)
                self._found[block] = make()
            self._found.move_to_end(block)
            return self._found[block]

    def _make_room(self, needed: int) -> None:
        """Drop the least recently used blocks."""
        sizes = [bytes_of(found) for found in self._found.values()]
        while sizes and sum(sizes) + needed > self.most:
            self._found.popitem(last=False)
            sizes.pop(0)


class RecomputedBlocks(Store):
    """What is inside the blocks of a run that keeps block checkpoints, and of the runs that come of it by changes.

    Runs share the blocks that no change has reached, and so what was found in them.
    """

    def block(self, calls: list[Call], block: Call, placed: Placed, heads: int) -> list[Call]:
        """Return a block and the calls made in it with their numbers; `placed` are the changes of the run."""
        needed = bytes_of(calls[block.number : block.end])
        return self.get(block, needed, lambda: _run_again(calls, block, placed, heads))


def _run_again(calls: list[Call], block: Call, placed: Placed, heads: int) -> list[Call]:
    """Return the calls of a block, run once more on what it was given, with the changes that it had."""
    # What a change did to the block's own arguments was kept with them.
    given = {address for address in placed if address.number == block.number and address.place != RETURNED}
    intervention = Intervention({address: own for address, own in placed.items() if address not in given}, heads)
    engine = TracingEngine(intervention.before, intervention.after, calls=calls[: block.number], _inside=block.parent)
    unpack_in_time(engine)
    run_traced(block.function, *block.arguments, engine=engine)
    own = engine.calls[block.number :]
    y, kept = own[0].outputs[0], block.outputs[0]
    for call in own:  # what leaves the block stays one array: arrays are told apart by identity
        if call.outputs[0] is y:
            call.result = (kept, *call.outputs[1:]) if isinstance(call.result, tuple) else kept
    return own


def bytes_of(calls: list[Call]) -> int:
    """Return the bytes of all arrays that calls returned or read, with their numbers or without."""
    parts = [part for call in calls for part in (*call.outputs, *call.arguments)]
    return sum({id(part): part.nbytes for part in parts if hasattr(part, "nbytes")}.values())
