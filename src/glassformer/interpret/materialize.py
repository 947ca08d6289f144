"""A run with block checkpoints, with the numbers around one value: of the blocks that made it and that read it.

A card needs no more. All other arrays stay placeholders, so that memory does not grow with the length of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..arrays import Array
from ..quantized import Quantized
from ..tree import flatten, rebuilt
from .block_checkpoints import PARAMS, block_of, is_block
from .names import value_at
from .run import Run
from .tracing import Call


def materialize_around(run: Run, name: str) -> Run:
    """Return a run with all numbers of the calls that have to do with a value, a parameter or a part of the batch."""
    leaves, calls, tables = flatten(run.params), list(run.calls), _Tables()
    names = {id(leaf): own for own, leaf in leaves.items()}
    wanted = leaves[name] if name in leaves else value_at(calls, run.addresses[name]) if name in run else None
    maker = run.calls[run.addresses[name].number] if name in run else None
    around = None if maker is None else block_of(maker)
    for call in run.calls:
        if is_block(call) and (call is around or _reads(call, wanted)):
            calls[call.number : call.end] = found = run.block(call)
            stored, params = (flatten(one.arguments[PARAMS]) for one in (call, found[0]))
            leaves.update({names[id(leaf)]: params[own] for own, leaf in stored.items()})
    outside = [call for call in run.calls if not call.is_method and block_of(call) is None]
    if any(call is maker or _reads(call, wanted) for call in outside):
        for call in outside:
            if any(isinstance(part, Quantized) for part in call.arguments):
                calls[call.number] = replace(call, arguments=tuple(map(tables.unpacked, call.arguments)))
        leaves = {own: tables.unpacked(leaf) if "blocks." not in own else leaf for own, leaf in leaves.items()}
    return replace(run, params=rebuilt(run.params, leaves), calls=calls, inside=None)


def _reads(call: Call, wanted: Any) -> bool:
    """Tell whether a call was given an array, by itself or among parameters; a table may be turned over."""
    return any(_same(part, wanted) for part in _parts(call.arguments))


def _parts(arguments: tuple[Any, ...]) -> Iterator[Any]:
    for argument in arguments:
        yield from flatten(argument).values() if isinstance(argument, dict) else (argument,)


def _same(part: Any, wanted: Any) -> bool:
    if isinstance(part, Quantized) and isinstance(wanted, Quantized):
        return part.blocks is wanted.blocks
    return wanted is not None and (part is wanted or getattr(part, "base", None) is wanted)


class _Tables:
    """Unpacks matrices, each once, also where it is read turned over."""

    def __init__(self) -> None:
        self._found: dict[int, Array] = {}

    def unpacked(self, part: Any) -> Any:
        """Return a matrix as an array; anything else stays itself."""
        if not isinstance(part, Quantized):
            return part
        if id(part.blocks) not in self._found:
            self._found[id(part.blocks)] = (part.T if part.turned else part).dequantize()
        table = self._found[id(part.blocks)]
        return table.T if part.turned else table
