"""A stack of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .. import ops
from ..arrays import Array, Tree, namespace
from ..backend import gathered, shared_out, spread, together
from . import scanned
from .attention import InputGrads
from .block import Block
from .cache import Cache
from .layer import Layer
from .norm import Norm
from .position import AlibiPositions, RelativePositions, RotaryPositions
from .token import read_token

Positions: TypeAlias = RotaryPositions | AlibiPositions | RelativePositions


class Again(NamedTuple):
    """What a block read: enough to run it again."""

    x: Array
    key: Array | None


@dataclass(frozen=True)
class Stack(Layer):
    """The same kind of block, one after the other, and perhaps a last norm."""

    block: Block
    layers: int
    final_norm: Norm | None = None
    positions: Positions | None = None
    remat: bool = False  # keep only what each block read, and run it again in the backward pass

    def specs(self) -> Tree:
        specs: dict[str, Tree] = {"blocks": [self.block.specs() for _ in range(self.layers)]}
        if isinstance(self.positions, RelativePositions):
            specs["relative"] = self.positions.specs()
        if self.final_norm is not None:
            specs["final_norm"] = self.final_norm.specs()
        return specs

    def forward(
        self,
        params: Tree,
        x: Array,
        memory: Array | None = None,
        *,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        positions: Array | None = None,
        key: Array | None = None,
    ) -> tuple[Array, Tree]:
        """Run all blocks on x (..., T, D); `positions` (T,) or (..., T) are 0, 1, … unless given.

        The blocks' parameters are a list, or one dict whose arrays have the layers as their first axis: see `scanned`.
        """
        saved: dict[str, Tree] = {}
        rotation = self._rotation(x, positions)
        bias = self._bias(params, x, saved)
        keys = [None if key is None else ops.fold_key(key, number) for number in range(self.layers)]
        given = {"memory": memory, "bias": bias, "mask": mask, "memory_mask": memory_mask, "rotation": rotation}
        if self.remat:
            saved["given"] = given
        run = partial(self._run, given)
        if isinstance(params["blocks"], dict):
            x, saved["blocks"] = scanned.forward(run, params["blocks"], x, keys)
        else:
            saved["blocks"] = []
            for block_params, block_key in zip(params["blocks"], keys, strict=True):
                x, record = run(block_params, x, block_key)
                saved["blocks"].append(record)
        if self.final_norm is not None:
            x, saved["final_norm"] = self.final_norm.forward(params["final_norm"], x)
        return x, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        grads: dict[str, Tree] = {}
        if self.final_norm is not None:
            dy, grads["final_norm"] = self.final_norm.backward(params["final_norm"], saved["final_norm"], dy)
        run_back = partial(self._run_back, saved.get("given"))
        if isinstance(params["blocks"], dict):
            read, grads["blocks"] = scanned.backward(run_back, params["blocks"], saved["blocks"], dy)
        else:
            read, grads["blocks"] = InputGrads(dy), []
            for block_params, record in zip(reversed(params["blocks"]), reversed(saved["blocks"]), strict=True):
                below, block_grads = run_back(block_params, record, read.x)
                grads["blocks"].insert(0, block_grads)
                read = below.after(read)
        if isinstance(self.positions, RelativePositions):
            _, grads["relative"] = self.positions.backward(params["relative"], saved["relative"], read.bias)
        return InputGrads(read.x, read.memory), grads

    def _run(self, given: Tree, params: Tree, x: Array, key: Array | None) -> tuple[Array, Tree]:
        """Run one block on x and what all blocks are given; keep its record, or only what it takes to run it again."""
        y, record = self.block.forward(gathered(params), x, key=key, **given)
        return spread(y), Again(x, key) if self.remat else record

    def _run_back(self, given: Tree, params: Tree, record: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        params = gathered(params)
        if isinstance(record, Again):
            x, dy = together(record.x, dy)
            _, record = self.block.forward(params, x, key=record.key, **given)
        read, grads = self.block.backward(params, record, dy)
        return InputGrads(spread(read.x), read.memory, read.bias), shared_out(grads)

    def new_cache(self) -> Cache:
        """Return a cache that has read nothing."""
        return Cache(self.layers, self.block.attention.pattern.window)

    def remember(self, params: Tree, memory: Array, cache: Cache, *, mask: Array | None = None) -> None:
        """Let every block compute the keys and values of a memory (..., S, D), once."""
        assert self.block.cross_attention is not None
        for block_params, kept in zip(params["blocks"], cache.blocks, strict=True):
            kept.memory = self.block.cross_attention.remember(block_params["cross_attention"], memory)
        cache.memory_mask = mask

    def read(
        self, params: Tree, x: Array, cache: Cache, *, mask: Array | None = None, positions: Array | None = None
    ) -> Array:
        """Return what `forward` gives for further tokens x (..., T, D), which attend to all tokens in the cache.

        mask   (..., T) True for those of the new tokens that are real
        """
        new = x.shape[-2]
        cache.note_padding(mask, tuple(x.shape[:-1]))
        rotation = self._rotation(x, cache.rows(new) if positions is None else positions, cache.capacity)
        y = None
        if new == 1 and cache.mask is None and (self.positions is None or rotation is not None):
            y = read_token(self, params, x, cache, rotation)
        x = self._read_blocks(params, x, cache, rotation) if y is None else y
        return x if self.final_norm is None else self.final_norm.forward(params["final_norm"], x)[0]

    def _read_blocks(self, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None) -> Array:
        new = x.shape[-2]
        mask, bias = cache.key_mask(new), self._bias(params, x, {}, cache.rows(new), cache.columns(new))
        memory_mask = None if cache.memory_mask is None else cache.memory_mask[..., None, :]
        for block_params, kept in zip(params["blocks"], cache.blocks, strict=True):
            x = self.block.read(block_params, x, kept, bias, mask=mask, memory_mask=memory_mask, rotation=rotation)
        return x

    def _rotation(self, x: Array, positions: Array | None, limit: int | None = None) -> tuple[Array, Array] | None:
        if not isinstance(self.positions, RotaryPositions):
            return None
        cos, sin = self.positions.rotation(np.arange(x.shape[-2]) if positions is None else positions, limit)
        kind = _wide_type(x)
        return namespace(x).asarray(cos, dtype=kind), namespace(x).asarray(sin, dtype=kind)

    def _bias(
        self, params: Tree, x: Array, saved: dict[str, Tree], rows: Array | None = None, columns: Array | None = None
    ) -> Array | None:
        """Return the bias (H, T, S) on the scores of queries at `rows` and keys at `columns` (all of x if None)."""
        if self.positions is None or isinstance(self.positions, RotaryPositions):
            return None
        places = np.arange(x.shape[-2])
        rows, columns = places if rows is None else rows, places if columns is None else columns
        if isinstance(self.positions, AlibiPositions):
            return namespace(x).asarray(self.positions.bias(rows, columns), dtype=_wide_type(x))
        bias, saved["relative"] = self.positions.forward(params["relative"], rows, columns)
        return bias


def _wide_type(x: Array) -> Any:
    """Return the real type of x, float32 for half precision: tables of positions keep their digits."""
    return np.float32 if x.dtype.itemsize == 2 else x.real.dtype
