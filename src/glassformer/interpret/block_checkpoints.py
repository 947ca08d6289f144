"""Runs that keep what training keeps with `remat`: what enters each block, which runs again when its inside is needed.

A run that keeps everything grows with layers · T²; the stream that a block reads and writes grows with T, and the same
lines on the same numbers give the same bits. Freed arrays leave placeholders: names, shapes and readers stay known.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from ..core.quantized import Quantized
from ..core.tree import flatten, named
from .packed import unpacked
from .tracing import Call, Paths, TracingEngine, block_of, is_block, run_traced

PARAMS = 1
"""Where parameters stand among the arguments of a block, behind its stack, and of `linear`, behind x."""
READ_MATRICES = ("linear", "linear_backward", "embedding_backward")
INSIDE = 1 << 27
"""Bytes of blocks that were run again and are kept, unless one alone has more."""


def unpack(call: Call) -> tuple[Any, ...] | None:
    """Return the arguments of a block, or of an op that reads a packed matrix, with plain parameters; None for others.

    So parameters are unpacked when they are needed: those of one block, or one matrix outside of blocks.
    """
    read = flatten(call.arguments[PARAMS]).values() if call.name in READ_MATRICES else ()
    if not is_block(call) and not any(isinstance(leaf, Quantized) for leaf in read):
        return None
    first, packed, *rest = call.arguments
    return (first, named(unpacked(packed), getattr(packed, "path", "")), *rest)


class RecomputedBlocks:
    """The blocks of a pass, forward or backward, that freed their inside: each runs again when it is asked for.

    Those asked for last stay. A changed run shares them with the run `beside` it, for blocks that no change reached.
    """

    def __init__(self, engine: TracingEngine, beside: RecomputedBlocks | None = None) -> None:
        self.engine = engine  # the one that ran the pass
        self._found: OrderedDict[Call, list[Call]] = OrderedDict() if beside is None else beside._found
        self._lock: threading.RLock = threading.RLock() if beside is None else beside._lock

    def __len__(self) -> int:
        return len(self._found)

    def clear(self) -> None:
        """Let go of everything: it can be had again."""
        with self._lock:
            self._found.clear()

    def call(self, number: int) -> Call:
        """Return a call with its numbers."""
        own = self.engine.calls[number]
        block = block_of(own)
        return own if block is None else self.block(block)[number - block.number]

    def block(self, block: Call) -> list[Call]:
        """Return the call of a block, and those made in it, with their numbers."""
        with self._lock:
            if block not in self._found:
                needed = bytes_of(self.engine.calls[block.number : block.end])
                sizes = [bytes_of(found) for found in self._found.values()]
                while sizes and sum(sizes) + needed > INSIDE:
                    self._found.popitem(last=False)
                    sizes.pop(0)
                self._found[block] = self._run_again(block)
            self._found.move_to_end(block)
            return self._found[block]

    def _run_again(self, block: Call) -> list[Call]:
        ran = self.engine

        def before(call: Call) -> None:
            # What a change did to the block's own arguments was kept with them.
            if ran.before is not None and call.number > block.number:
                ran.before(call)

        before_it, at = ran.calls[: block.number], Paths(block.key.path)
        engine = TracingEngine(before, ran.after, ran.load, calls=before_it, paths=at, _inside=block.parent)
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
