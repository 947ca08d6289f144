"""A stack of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .. import ops
from ..arrays import Array, Tree, namespace
from .attention import InputGrads
from .block import Block
from .cache import Cache
from .layer import Layer
from .norm import Norm
from .position import AlibiPositions, RelativePositions, RotaryPositions
from .token import read_token

Positions: TypeAlias = RotaryPositions | AlibiPositions | RelativePositions


@dataclass(frozen=True)
class Stack(Layer):
    """The same kind of block, one after the other, and perhaps a last norm."""

    block: Block
    layers: int
    final_norm: Norm | None = None
    positions: Positions | None = None

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
        """Run all blocks on x (..., T, D); `positions` (T,) or (..., T) are 0, 1, … unless given."""
        saved: dict[str, Tree] = {"blocks": []}
        rotation = self._rotation(x, positions)
        bias = self._bias(params, x, saved)
        for number in range(self.layers):
            x, record = self.block.forward(
                params["blocks"][number],
                x,
                memory,
                bias,
                mask=mask,
                memory_mask=memory_mask,
                rotation=rotation,
                key=None if key is None else ops.fold_key(key, number),
            )
            saved["blocks"].append(record)
        if self.final_norm is not None:
            x, saved["final_norm"] = self.final_norm.forward(params["final_norm"], x)
        return x, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        grads: dict[str, Tree] = {"blocks": []}
        if self.final_norm is not None:
            dy, grads["final_norm"] = self.final_norm.backward(params["final_norm"], saved["final_norm"], dy)
        dmemory = dbias = None
        for block_params, record in zip(reversed(params["blocks"]), reversed(saved["blocks"]), strict=True):
            read, block_grads = self.block.backward(block_params, record, dy)
            grads["blocks"].insert(0, block_grads)
            dy = read.x
            # Every block read the same memory and the same bias.
            dmemory = read.memory if dmemory is None else dmemory + read.memory
            dbias = read.bias if dbias is None else dbias + read.bias
        if isinstance(self.positions, RelativePositions):
            _, grads["relative"] = self.positions.backward(params["relative"], saved["relative"], dbias)
        return InputGrads(dy, dmemory), grads

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
        rotation = self._rotation(x, cache.rows(new) if positions is None else positions)
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

    def _rotation(self, x: Array, positions: Array | None) -> tuple[Array, Array] | None:
        if not isinstance(self.positions, RotaryPositions):
            return None
        cos, sin = self.positions.rotation(np.arange(x.shape[-2]) if positions is None else positions)
        kind = x.real.dtype
        return namespace(x).asarray(cos, dtype=kind), namespace(x).asarray(sin, dtype=kind)

    def _bias(
        self, params: Tree, x: Array, saved: dict[str, Tree], rows: Array | None = None, columns: Array | None = None
    ) -> Array | None:
        """Return the bias (H, T, S) on the scores of queries at `rows` and keys at `columns` (all of x if None)."""
        places = np.arange(x.shape[-2])
        rows, columns = places if rows is None else rows, places if columns is None else columns
        if isinstance(self.positions, AlibiPositions):
            return namespace(x).asarray(self.positions.bias(rows, columns), dtype=x.real.dtype)
        if isinstance(self.positions, RelativePositions):
            bias, saved["relative"] = self.positions.forward(params["relative"], rows, columns)
            return bias
        return None
