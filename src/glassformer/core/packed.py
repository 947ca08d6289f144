"""Parameters as a run has them: plain arrays, unpacked from the blocks or the 16 bits in which a file stores them."""

from typing import Any

import numpy as np

from .arrays import Array, Tree, widen
from .quantized import Quantized
from .tree import flatten, map_named, tree_map

COPIED = 1 << 28
"""Bytes of parameters up to which a run has copies of its own."""


def unpacked(params: Tree) -> Tree:
    """Return parameters as a run has them: NumPy arrays in at least single precision, those in blocks unpacked.

    What is such an array already stays itself: unpack once what is watched more than once.
    """
    return tree_map(_plain, params)


def read_only(leaf: Array) -> Array:
    """Return an array that can no longer be written to, so that runs may share it."""
    leaf.flags.writeable = False
    return leaf


def as_stored(params: Tree) -> Tree:
    """Return parameters for a run that unpacks one matrix, or one block of the model, at a time."""

    def stored(name: str, leaf: Any) -> Any:
        return leaf if isinstance(leaf, Quantized) or "blocks." in name else _plain(leaf)

    return map_named(stored, params)


def owned(params: Tree) -> Tree:
    """Return copies of parameters, so that a run stays as it was when the model learns on.

    Large ones, and read-only arrays, are shared.
    """
    if sum(leaf.nbytes for leaf in flatten(params).values()) > COPIED:
        return params
    return tree_map(lambda leaf: np.array(leaf) if leaf.flags.writeable else leaf, params)


def _plain(leaf: Any) -> Array:
    """Return a parameter as a NumPy array in at least single precision."""
    return leaf.dequantize() if isinstance(leaf, Quantized) else np.asarray(widen(leaf))
