"""Weights in fewer bits: matrices that stay in the blocks in which they are stored, and are multiplied from there.

    table = quantize(x, "Q8_0")      table[ids]      table.T      table.dequantize()

A row is cut into blocks of 32 numbers, each behind the float16 numbers that scale it, as in GGUF files:

    F16      2 bytes for 1 number      x
    Q8_0    34 bytes for 32            d, q₀ … q₃₁                     x = d q          q in −127 … 127
    Q4_0    18 bytes for 32            d, 16 bytes of two q each       x = d (q − 8)    q in 0 … 15
    Q4_1    20 bytes for 32            d, m, 16 bytes of two q each    x = d q + m      q in 0 … 15

Two q share a byte: q₀ … q₁₅ are the lower halves of the 16 bytes, q₁₆ … q₃₁ the upper ones.

In memory four rows are kept together, block by block: their four d, their four m, then four bytes of each row in turn.
One instruction then multiplies four numbers of all four rows.

Such weights are for generation. They have no gradient, and nothing turns them into an array by accident.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from .arrays import Array, Tree, widen
from .errors import DTypeError, ShapeError
from .settings import check_known
from .tree import flatten, map_named, tree_map

BLOCK = 32
GROUP = 4
"""Rows that are kept together."""
COPIED = 1 << 28
"""Bytes of parameters up to which a run has copies of its own."""


class Form(NamedTuple):
    """The form of a block: its numbers, its bytes, how many of these are scales, and its name."""

    numbers: int
    size: int
    scales: int
    title: str


FORMS = MappingProxyType(
    {
        "F16": Form(1, 2, 0, "float16"),
        "Q8_0": Form(BLOCK, 34, 2, "8-bit blocks"),
        "Q4_0": Form(BLOCK, 18, 2, "4-bit blocks"),
        "Q4_1": Form(BLOCK, 20, 4, "4-bit blocks"),
    }
)


@dataclass(frozen=True, eq=False, repr=False)
class Quantized:
    """A matrix in blocks: a leaf among parameters that stands for float32 numbers.

    form        how numbers are stored, one of FORMS
    blocks      (N / 4, blocks of a row, bytes of 4 blocks), uint8; of F16 (N, bytes of a row)
    rows        N; the last four rows may be fewer
    columns     numbers in a row; the last block may hold more, which count for nothing
    turned      whether the matrix is the transpose: rows of blocks are then its columns
    """

    __array_ufunc__ = None  # `array @ matrix` is answered here, by __rmatmul__
    __iter__ = None  # or it would be a sequence of rows, of which arrays can be made
    dtype = np.dtype(np.float32)
    ndim = 2

    form: str
    blocks: Array
    rows: int
    columns: int
    turned: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_blocks(self.form, self.blocks, self.rows, self.columns)

    @property
    def address(self) -> int:
        """Where the blocks are."""
        return self.blocks.__array_interface__["data"][0]

    @classmethod
    def of_rows(cls, form: str, stored: Array, columns: int) -> Quantized:
        """Take over rows as GGUF files store them, (N, bytes of a row)."""
        size = row_size(form, columns)
        if stored.dtype != np.uint8 or stored.ndim != 2 or stored.shape[1] != size:
            raise ShapeError(
                f"bytes of shape {tuple(stored.shape)} and type {stored.dtype} cannot hold rows of {columns} numbers",
                hint=f"as {form} they are uint8, (rows, {size})",
            )
        return cls(form, _grouped(form, stored), len(stored), columns)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix that the blocks stand for."""
        return (self.columns, self.rows) if self.turned else (self.rows, self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return int(self.blocks.nbytes)

    @property
    def T(self) -> Quantized:  # noqa: N802  (the name that arrays give it)
        """The transpose, on the same blocks."""
        return Quantized(self.form, self.blocks, self.rows, self.columns, turned=not self.turned)

    def __getitem__(self, ids: Any) -> Array:
        """Return rows, by an array of their numbers or by one: float32, (..., columns)."""
        if self.turned:
            raise DTypeError("columns of a matrix in blocks cannot be looked up", hint="look up rows of its transpose")
        ids = np.asarray(ids)
        flat = np.where(ids < 0, ids + self.rows, ids).reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < self.rows:
            raise IndexError(f"rows {ids} of a matrix of {self.rows}")
        rows = self.blocks[flat] if self.form == "F16" else _picked(self.form, self.blocks, flat)
        return read_rows(self.form, rows, self.columns).reshape(*ids.shape, self.columns)

    def dequantize(self) -> Array:
        """Return the matrix as a float32 array."""
        table = np.empty((self.rows, self.columns), np.float32)
        for start in range(0, self.rows, _PART):  # a part at a time, because it takes several times its memory
            if self.form == "F16":
                stored = self.blocks[start : start + _PART]
            else:
                stored = _apart(self.form, self.blocks[start // GROUP : (start + _PART) // GROUP])
            part = table[start : start + _PART]
            part[...] = read_rows(self.form, stored[: len(part)], self.columns)
        return table.T if self.turned else table

    def __rmatmul__(self, x: Array) -> Array:
        return x @ self.dequantize()

    def __array_namespace__(self, **_: Any) -> Any:
        return np

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise no_array(self)

    def __repr__(self) -> str:
        return f"Quantized({self.form}, {self.shape[0]} × {self.shape[1]})"


def _check_blocks(form: str, blocks: Array, rows: int, columns: int) -> None:
    """Refuse blocks that do not hold a matrix of this size: who multiplies reads them by their address."""
    size = row_size(form, columns)
    if form == "F16":
        wanted: tuple[int, ...] = (rows, size)
    else:
        wanted = (-(-rows // GROUP), size // FORMS[form].size, GROUP * FORMS[form].size)
    fits = type(blocks) is np.ndarray and blocks.dtype == np.uint8 and blocks.flags.c_contiguous
    if not fits or blocks.shape != wanted or min(rows, columns) < 0:
        raise ShapeError(
            f"these blocks cannot hold {rows} rows of {columns} numbers",
            hint=f"as {form} they are uint8 in C order, {wanted}",
        )


def no_array(w: Quantized) -> DTypeError:
    """Return the error for a use that needs the numbers themselves."""
    return DTypeError(
        f"these weights are held as {FORMS[w.form].title}, from which a model can write but not learn or be inspected",
        hint='load the model with weights="float32", or turn one matrix into an array with dequantize()',
    )


def check_learnable(w: Array | Quantized) -> None:
    """Refuse to compute a gradient for weights in blocks."""
    if isinstance(w, Quantized):
        raise no_array(w)


def quantize(x: Array, form: str) -> Quantized:
    """Round a matrix (N, I) to blocks along its rows."""
    if x.ndim != 2:
        raise ShapeError(f"only matrices are stored in blocks, not shape {tuple(x.shape)}", hint="pass (rows, columns)")
    stored = np.empty((len(x), row_size(form, x.shape[1])), dtype=np.uint8)
    for start in range(0, len(x), _PART):
        part = np.ascontiguousarray(x[start : start + _PART], dtype=np.float32)
        largest = np.abs(part).max(initial=0)
        if not largest <= np.finfo(np.float16).max:
            raise DTypeError(
                f"a weight of size {largest:.3g} cannot be stored: float16, of which blocks are made, ends at 65,504",
                hint="the model is damaged, or must stay in float32",
            )
        stored[start : start + _PART] = write_rows(form, part)
    return Quantized.of_rows(form, stored, x.shape[1])


def row_size(form: str, columns: int) -> int:
    """Return the bytes of a row of `columns` numbers."""
    check_known("there are no blocks of the kind", form, FORMS)
    return -(-columns // FORMS[form].numbers) * FORMS[form].size


def read_rows(form: str, stored: Array, columns: int) -> Array:
    """Return what rows of blocks (N, bytes) stand for: float32, (N, columns)."""
    if form == "F16":
        return stored.view(np.float16).astype(np.float32)
    blocks = stored.reshape(len(stored), -(-columns // BLOCK), FORMS[form].size)
    d = blocks[..., :2].copy().view(np.float16).astype(np.float32)  # (N, blocks, 1)
    # Damaged numbers may be infinite: the reader sees that, and NumPy need not warn about it.
    with np.errstate(all="ignore"):
        if form == "Q8_0":
            x = blocks[..., 2:].view(np.int8) * d
        elif form == "Q4_0":
            x = (_halves(blocks[..., 2:]) - np.float32(8)) * d
        else:
            x = _halves(blocks[..., 4:]) * d + blocks[..., 2:4].copy().view(np.float16).astype(np.float32)
    return x.reshape(len(stored), blocks.shape[1] * BLOCK)[:, :columns]


def write_rows(form: str, x: Array) -> Array:
    """Round rows x (N, I), float32, to rows of blocks (N, bytes)."""
    if form == "F16":
        return x.astype(np.float16).view(np.uint8)
    size = row_size(form, x.shape[1])
    # The last number fills up the last block: it does not widen the range that the block must cover.
    x = np.pad(x, ((0, 0), (0, -x.shape[1] % BLOCK)), mode="edge") if x.shape[1] else x
    x = x.reshape(len(x), x.shape[1] // BLOCK, BLOCK)
    if form == "Q8_0":
        d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
        q = x * _inverse(d)
        blocks = _joined(d, (np.sign(q) * np.floor(np.abs(q) + np.float32(0.5))).astype(np.int8).view(np.uint8))
    elif form == "Q4_0":
        # The number furthest from zero becomes −8, the one q − 8 that has no counterpart.
        d = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1) / np.float32(-8)
        blocks = _joined(d, _packed(x * _inverse(d) + np.float32(8.5)))
    else:
        low = x.min(axis=-1, keepdims=True)
        d = (x.max(axis=-1, keepdims=True) - low) / np.float32(15)
        blocks = _joined(d, low, _packed((x - low) * _inverse(d) + np.float32(0.5)))
    return blocks.reshape(len(x), size)


_PART = 4096  # rows that are converted at a time: a multiple of those kept together


def _grouped(form: str, stored: Array) -> Array:
    """Put four rows of blocks (N, bytes) together: (N / 4, blocks of a row, bytes of 4 blocks)."""
    if form == "F16":
        return np.ascontiguousarray(stored)
    size, missing = FORMS[form].size, -len(stored) % GROUP
    stored = np.concatenate((stored, np.zeros((missing, stored.shape[1]), np.uint8))) if missing else stored
    groups, count = len(stored) // GROUP, stored.shape[1] // size
    fours = stored.reshape(groups, GROUP, count, size)
    blocks = np.empty((groups, count, GROUP * size), np.uint8)
    for part, unit in _parts(form):
        units = fours[..., part].view(unit)
        columns = slice(GROUP * part.start, GROUP * part.stop)
        target = blocks[..., columns].view(unit).reshape(groups, count, units.shape[-1], GROUP)
        target[...] = units.transpose(0, 2, 3, 1)
    return blocks


def _apart(form: str, blocks: Array) -> Array:
    """Undo `_grouped`, for whole fours: (N, bytes)."""
    groups, count, size = len(blocks), blocks.shape[1], FORMS[form].size
    fours = np.empty((groups, GROUP, count, size), np.uint8)
    for part, unit in _parts(form):
        wide = blocks[..., GROUP * part.start : GROUP * part.stop].view(unit)
        units = wide.reshape(groups, count, wide.shape[-1] // GROUP, GROUP).transpose(0, 3, 1, 2)
        fours[..., part].view(unit)[...] = units
    return fours.reshape(groups * GROUP, count * size)


def _picked(form: str, blocks: Array, rows: Array) -> Array:
    """Return some rows, by their numbers (R,): (R, bytes)."""
    fours = _apart(form, blocks[rows // GROUP]).reshape(len(rows), GROUP, blocks.shape[1] * FORMS[form].size)
    return fours[np.arange(len(rows)), rows % GROUP]


def _parts(form: str) -> tuple[tuple[slice, Any], tuple[slice, Any]]:
    """Return the parts of a block and what changes place in them as a whole: scales by two bytes, q by four."""
    return (slice(0, FORMS[form].scales), np.uint16), (slice(FORMS[form].scales, FORMS[form].size), np.uint32)


def _inverse(d: Array) -> Array:
    """Return 1 / d, zero where d is so small that float16 will make it zero and float32 might not hold 1 / d."""
    return np.divide(1, d, out=np.zeros_like(d), where=np.abs(d) >= np.finfo(np.float32).tiny)


def _halves(pairs: Array) -> Array:
    """Cut bytes (..., 16) into the q of their lower and upper halves, (..., 32)."""
    return np.concatenate((pairs & 15, pairs >> 4), axis=-1).astype(np.float32)


def _packed(q: Array) -> Array:
    """Round q (..., 32) down to 0 … 15 and put two into each byte, (..., 16)."""
    q = np.clip(np.trunc(q), 0, 15).astype(np.uint8)
    return q[..., : BLOCK // 2] | (q[..., BLOCK // 2 :] << 4)


def _joined(*parts: Array) -> Array:
    """Put scales, as float16, before the bytes of a block."""
    return np.concatenate([p if p.dtype == np.uint8 else p.astype(np.float16).view(np.uint8) for p in parts], axis=-1)


# --- parameters as a run has them -------------------------------------------------------------------------------------


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
