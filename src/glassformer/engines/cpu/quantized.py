"""Products with matrices in blocks: straight from the blocks for a few rows, by parts turned into floats for many."""

from functools import partial
from typing import Any

import numpy as np

from ... import ops
from ...arrays import Array
from ...dispatch import replaces
from ...quantized import BLOCK, GROUP, Quantized
from .cores import cores, each
from .layout import is_plain, rows
from .matvec import multiply_few
from .quantized_rows import CODES, unpack

PART = 256
"""Rows of blocks that are turned into floats at a time: they stay in the cache of a core until they are multiplied."""


@replaces(ops.quantized_product)
def quantized_product(x: Array, w: Quantized) -> Any:
    if type(w) is not Quantized or not w.turned or not is_plain(x) or x.dtype != np.float32:
        return NotImplemented
    if x.ndim < 1 or x.shape[-1] != w.shape[0]:
        return NotImplemented
    flat = rows(x)
    y = multiply_few(flat, w)
    if y is NotImplemented:
        y = np.empty((len(flat), w.rows), np.float32)
        workers = cores()
        starts = [range(first * PART, w.rows, workers * PART) for first in range(workers)]
        each([partial(_multiply_many, flat, w, y, own) for own in starts])
    return y.reshape(*x.shape[:-1], w.rows)


def _multiply_many(x: Array, w: Quantized, y: Array, starts: range) -> None:
    """Write some of the columns of y = x w, a part from each start."""
    for start in starts:
        part = _floats(w, start, min(start + PART, w.rows))
        y[:, start : start + PART] = x @ part.T


def _floats(w: Quantized, start: int, stop: int) -> Array:
    """Return rows of blocks as float32; `start` is a multiple of those that lie side by side."""
    if w.form == "F16":
        return w.blocks[start:stop].view(np.float16).astype(np.float32)
    count, size = w.blocks.shape[1:]
    table = np.empty((-(-(stop - start) // GROUP) * GROUP, BLOCK * count), np.float32)
    unpack(CODES[w.form], w.address + start // GROUP * count * size, count, table)
    return table[: stop - start, : w.columns]
