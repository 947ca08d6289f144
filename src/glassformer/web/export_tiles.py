"""The tiles of a run that a file holds, and their resolution."""

import itertools
import json
import math
import struct
from typing import Any

import numpy as np

from ..core.tree import flatten
from ..interpret.scene import scene
from .explorer import Explorer
from .state import read_state

SIDES = ("height", "width")
LEVELS = (
    (1024, 1024, "<f8"), (1024, 1024, "<f4"), (1024, 16, "<f4"), (128, 16, "<f4"), (64, 16, "<f4"), (32, 16, "<f4"),
    (16, 16, "<f4"), (8, 8, "<f4"),
)  # fmt: skip
"""Cells of a tile along one side, those of gradients that are not on the scene, and the type of their numbers: the
first with which everything fits."""


def tiles_of(
    explorer: Explorer, state: dict[str, Any], what: str, level: tuple[int, int, str]
) -> list[tuple[dict[str, Any], str, int]]:
    """Return a question for each matrix of each tensor of a run, which array it is of, and the bytes of its cells."""
    run = explorer.session(read_state(state)).run
    fine, coarse, kind = level
    on_scene = {id(run[one.name]) for part in scene(run) for one in part.stations()}
    found = []
    named = {**{name: run[name] for name in run}, **flatten(run.params)}
    for name, array in named.items():
        cells = fine if what == "value" or id(array) in on_scene else coarse
        rows, columns = (1, 1, *array.shape)[-2:]
        each = np.dtype(kind).itemsize + (4 if max(rows, columns) > cells else 0)
        size = each * min(rows, cells) * min(columns, cells) + 200
        same = f"{state['model']} {what} {id(array)}"
        for at in itertools.product(*(range(count) for count in array.shape[:-2])):
            question = {"state": state, "what": what, "name": name, "at": list(at), **dict.fromkeys(SIDES, cells)}
            found.append((question, f"{same} {at}", size))
    return found


def in_single(tile: bytes) -> bytes:
    """Return the bytes of a tile with its cells in float32."""
    end = 4 + struct.unpack_from("<I", tile)[0]
    facts = json.loads(tile[4:end])
    count = math.prod(facts["size"])
    head = json.dumps({**facts, "single": True}).encode()
    head += b" " * (-(len(head) + 4) % 8)
    cells = np.frombuffer(tile, "<f8", count, end).astype("<f4").tobytes()
    return struct.pack("<I", len(head)) + head + cells + tile[end + 8 * count :]
