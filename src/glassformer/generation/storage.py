"""Storage of weights while a model writes: in full, or in fewer bits, which memory delivers sooner.

Reading one token means reading every weight once, so half the bytes are half the time. What is rounded are matrices;
vectors, and tables of which a token reads one row, stay in float32.

    float32     4 bytes for a number    as trained
    float16     2                       to 11 bits
    int8        1.06                    to 8 bits of the largest of each 32 numbers
    int4        0.63                    to 16 levels between the smallest and the largest of each 32 (embedding: int8)
"""

from typing import Any

import numpy as np

from ..core.arrays import Array, Tree
from ..core.quantized import Quantized, quantize
from ..core.settings import check_known
from ..core.tree import map_named

AS_STORED = "as-stored"
STORAGES = ("float32", "float16", "int8", "int4", AS_STORED)
_MATRICES = {"float16": "F16", "int8": "Q8_0", "int4": "Q4_1"}
_TABLES = {"float16": "F16", "int8": "Q8_0", "int4": "Q8_0"}


def check_storage(weights: str) -> None:
    """Refuse an unknown way to keep weights."""
    check_known("weights cannot be kept as", weights, STORAGES)


def stored(params: Tree, weights: str) -> Tree:
    """Return the parameters of a model with its matrices kept as `weights`, one of STORAGES, ready to write with.

    Matrices lie as (outputs, inputs) in memory afterwards, so that each output is one run of it.
    """
    check_storage(weights)

    def keep(name: str, leaf: Any) -> Any:
        if name.endswith(".w"):
            return _kept(leaf.T, _MATRICES.get(weights), weights).T
        if name.endswith("tokens.table"):
            return _kept(leaf, _TABLES.get(weights), weights)
        return leaf

    return map_named(keep, params)


def _kept(table: Any, form: str | None, weights: str) -> Any:
    """Return a matrix (outputs, inputs) as it is to be kept."""
    if isinstance(table, Quantized):
        if weights == AS_STORED or table.form == form:
            return table
        numbers: Array = table.dequantize()
    elif type(table) is not np.ndarray or table.dtype != np.float32:
        return table  # in another precision on purpose, or on another device
    else:
        numbers = table
    return _in_memory(numbers) if form is None else quantize(numbers, form)


def _in_memory(numbers: Array) -> Array:
    """Return an array in C order and in memory of its own: pages of a mapped file are small, and slower to read."""
    owner = numbers
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return np.ascontiguousarray(numbers) if owner.base is None else np.array(numbers, order="C")
