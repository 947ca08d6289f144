"""The scene: which values stand in the picture of a run, and how wide its residual stream is."""

from __future__ import annotations

from typing import Any

from ...interpret.scene import SAYS, growth, lengths, scene
from ..explorer import RunSession
from ..router import route

WIDE = ("embedding", "stream", "adds", "vectors")
"""Stations that are drawn as wide as their vectors are long."""


@route("scene")
def describe_scene(session: RunSession) -> dict[str, Any]:
    """Return the stacks of the picture, each with the stations before, inside and behind its blocks."""
    run = session.run

    def fields(one: Any) -> dict[str, Any]:
        return {**one._asdict(), "shape": list(run.spec(one.name).shape)}

    parts = [
        {"stack": one.stack, "tokens": one.tokens, "start": [*map(fields, one.start)], "end": [*map(fields, one.end)],
         "blocks": [{"name": block.name, "stations": [*map(fields, block.stations)]} for block in one.blocks]}
        for one in scene(run)
    ]  # fmt: skip
    return {"parts": parts, "says": SAYS, "growth": growth(run)}


@route("lengths")
def stream_lengths(session: RunSession, what: str) -> dict[str, list[float]]:
    """Return the norm of the vector at each position of the stream, or of its gradient (`what` as in a tile)."""
    found: dict[str, list[float]] = {}
    for part in scene(session.run):
        stations = [*part.start, *(one for block in part.blocks for one in block.stations), *part.end]
        found |= {one.name: lengths(session.array(what, one.name)) for one in stations if one.kind in WIDE}
    return found
