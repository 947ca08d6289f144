"""The contents of a picture of a run, from left to right: the values in their order, and the kind of each.

    scene(run)            the stacks of the model, each from its embedding through its blocks to its end
    growth(run)           how much each sublayer adds to the stream
    lengths(array)        ‖·‖ of the vector at each position: how wide the residual stream is drawn
    moved(before, after)  how far a change moves what the model returns

A picture shows one block open and the others closed, so a block has a list of stations of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.dispatch import use_engine
from .names import VECTORS
from .run import Run
from .stream import ATTENTIONS, points, stacks, sublayers

SAYS = {
    "embedding": "one vector for each token",
    "stream": "the residual stream: each sublayer adds to it, and the next one reads it",
    "norm": "the stream, each vector brought to the same scale",
    "query": "what each token looks for",
    "key": "what each token offers to be found by",
    "value": "what each token hands over when it is looked at",
    "weights": "how much each token (row) looks at each other one (column); a row sums to 1",
    "mixture": "the values, mixed with these weights, of all heads",
    "adds": "what this sublayer adds to the stream",
    "hidden": "the neurons of the feed-forward layer, after their activation",
    "vectors": "what the model returns: one vector for each token",
    "pool": "one vector for the whole text",
}
"""What each kind of station shows."""


class Station(NamedTuple):
    """One value in the picture.

    kind    a key of `SAYS`
    name    of the value, to be read and changed
    part    the sublayer that it belongs to: attention, cross_attention or feed_forward; empty outside of them
    rows    whose tokens stand at its rows: tokens or source; empty where it has one row
    layers  the layers whose parameters it is made with
    """

    kind: str
    name: str
    part: str
    rows: str
    layers: list[str]


class Block(NamedTuple):
    """One block: the stream behind it, and what lies inside."""

    name: str
    stations: list[Station]


WIDE = ("embedding", "stream", "adds", "vectors")
"""Stations that are drawn as wide as their vectors are long."""


class StackScene(NamedTuple):
    """One stack: `start` stands before its blocks, `end` behind them; `tokens` says which tokens it reads."""

    stack: str
    tokens: str
    start: list[Station]
    blocks: list[Block]
    end: list[Station]

    def stations(self) -> list[Station]:
        """Return all its stations."""
        return [*self.start, *(one for block in self.blocks for one in block.stations), *self.end]


def scene(run: Run) -> list[StackScene]:
    """Return what stands in the picture of a run: an encoder-decoder has two stacks, the encoder first."""
    return [_stack(run, stack, prefix) for stack, prefix in stacks(run).items()]


def all_lengths(parts: list[StackScene], read: Callable[[str], Array]) -> dict[str, list[float]]:
    """Return the lengths of all vectors that are drawn as wide as they are long; `read` returns a value by its name."""
    return {one.name: lengths(read(one.name)) for part in parts for one in part.stations() if one.kind in WIDE}


def growth(run: Run, sizes: dict[str, list[float]] | None = None) -> dict[str, float]:
    """Return how much each sublayer adds to the stream: ‖what it adds‖ / ‖the stream before‖ at a usual position.

    sizes   what `all_lengths` returns, if it is known
    """
    found: dict[str, float] = {}
    if run.model.config.block == "no_residual":
        return found  # nothing is added
    sizes = sizes or all_lengths(scene(run), run.__getitem__)
    for part in scene(run):
        before = part.start[0].name  # the stream as it is so far
        for one in part.stations():
            if one.kind == "adds":
                adds, stream = sizes[one.name], sizes[before]
                # A learned vector that stands before the tokens has no embedding: it is left out of the first share.
                with np.errstate(divide="ignore", invalid="ignore"):
                    found[one.name] = float(np.median(np.divide(adds[-len(stream) :], stream)))
            elif one.kind == "stream":
                before = one.name
    return found


def lengths(array: Array) -> list[float]:
    """Return the norm of the vector at each position of the first example."""
    return np.linalg.norm(np.asarray(array, dtype=np.float64)[0], axis=-1).tolist()


def moved(before: Run, after: Run) -> float:
    """Return ‖after − before‖ / ‖before‖ of what the model returns."""
    was, now = (np.asarray(run.logits, dtype=np.float64) for run in (before, after))
    size = float(np.linalg.norm(was))
    return float(np.linalg.norm(now - was)) / size if size else 0.0


def fallen_most(before: Run, after: Run) -> int:
    """Return the position where the token that was the likeliest lost most of its probability."""
    with use_engine("numpy"):
        was, now = (ops.softmax(np.asarray(run.logits[0], dtype=np.float64))[0] for run in (before, after))
    best = was.argmax(axis=-1)[:, None]
    return int(np.argmax(np.take_along_axis(was - now, best, axis=-1)))


def _station(kind: str, name: str, part: str, rows: str) -> Station:
    """Return a station with the layers whose parameters it is made with."""
    base = name.removesuffix(".down.x")
    known = {"adds": [f"{name}.output", f"{name}.down"], "hidden": [f"{base}.gate", f"{base}.up"]}
    without = ("weights", "mixture", "stream")
    return Station(kind, name, part, rows, [] if kind in without else known.get(kind, [name]))


def _stack(run: Run, stack: str, prefix: str) -> StackScene:
    of_source = len(stacks(run)) == 2 and stack == "encoder"
    rows = "source" if of_source else "tokens"
    stream = [point.name for point in points(run, stack)]
    inside: dict[int, list[Any]] = {}
    for one in sublayers(run, stack):
        inside.setdefault(one.layer, []).append(one)
    behind = iter(stream[1:])
    every = len(stream) - 1 == sum(len(parts) for parts in inside.values())  # the stream is known behind each of them
    blocks: list[Block] = []
    while f"{prefix}.{len(blocks)}" in run:
        name, stations = f"{prefix}.{len(blocks)}", list[Station]()
        parts = inside.get(len(blocks), [])
        for one in parts:
            stations += _sublayer(run, one.name, one.kind, rows)
            if every:
                stations.append(Station("stream", next(behind), "", rows, []))
        if not every or not parts:
            stations.append(Station("stream", name, "", rows, []))
        blocks.append(Block(name, stations))
    first = "source_embedding" if of_source else "embedding"
    around = prefix.removesuffix("blocks")
    ends = [("norm", f"{around}final_norm"), ("pool", "pool"), ("vectors", VECTORS)]
    end = [_station(kind, name, "", "" if kind == "pool" else rows) for kind, name in ends if name in run]
    return StackScene(stack, rows, [_station("embedding", first, "", rows)], blocks, end if not of_source else end[:1])


def _sublayer(run: Run, name: str, kind: str, rows: str) -> list[Station]:
    """Return the values of a sublayer that a picture shows, as far as this model has them."""
    keys = "source" if kind == "cross_attention" else rows
    reads = f"{name}_norm" if run.model.config.norm_position == "pre" else ""
    found = [("norm", reads, rows)]
    if kind in ATTENTIONS:
        found += [("query", f"{name}.query", rows), ("key", f"{name}.key", keys), ("value", f"{name}.value", keys),
                  ("weights", f"{name}.attend.weights", rows), ("mixture", f"{name}.output.x", rows)]  # fmt: skip
    else:
        found += [("hidden", f"{name}.down.x", rows)]
    found += [("adds", name, rows)]
    return [_station(what, own, kind, whose) for what, own, whose in found if own in run]
