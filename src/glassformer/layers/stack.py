"""A stack of blocks: the same architecture again and again, each time with parameters of its own.

x runs through the blocks as one stream that every block reads and adds to; `saved["blocks"]` is its diary. The backward
pass walks the same list from the end.

    forward     x₀ → block 0 → x₁ → block 1 → … → x_L → final norm → y         records are written, from first to last
    backward    dx₀ ← block 0 ← dx₁ ← block 1 ← … ← dx_L ← final norm ← dy     records are read, from last to first

Only shapes are shared: x has the same (..., T, D) before and after every block, so blocks can be stacked to any depth,
left out, or compared with each other. What is the same for all of them is made once, before the first: where tokens
stand, as a rotation or a bias, and who may see whom.

Records are most of the memory of training, for they all exist when the backward pass begins. `remat` keeps only what
went into each block and runs the block once more when its turn comes (Chen et al. 2016): L inputs and one block's
record instead of L records, for one forward pass more, about a third of the work.
"""

import inspect
from dataclasses import dataclass
from typing import NamedTuple

from .. import ops
from ..core.arrays import Array, Tree, real_type
from ..core.dispatch import dispatched
from ..core.errors import ConfigError
from ..core.tree import tree_map
from .block import Block
from .cache import Cache
from .layer import InputGrads, Layer, RecordShape
from .norm import Norm
from .position import Positions


class RematInputs(NamedTuple):
    """Inputs of a block: enough to run it again."""

    x: Array  # (..., T, D)
    key: Array | None  # by which dropout drops the same numbers the second time


class ConsumableRecords(list):
    """Records for one backward pass, which removes them as it goes: gradients grow into the memory that they leave."""


@dataclass(frozen=True)
class Stack(Layer):
    """The same kind of block, one after the other, and perhaps a last norm.

        x ← block(x), L times      y = norm(x)

    With pre-norm the stream has never been normalized when it leaves the last block, so a last norm follows; with
    post-norm the last block ends with one.
    """

    block: Block  # one layer for all: blocks differ in their parameters, which they are given
    layers: int  # L
    final_norm: Norm | None = None
    positions: Positions | None = None  # those that enter through attention; None: they came with the tokens
    remat: bool = False  # keep only what each block read, and run it again in the backward pass

    def specs(self) -> Tree:
        """Return a list of the blocks' specs, and those of the positions and of the last norm where they have any."""
        specs: dict[str, Tree] = {"blocks": [self.block.specs() for _ in range(self.layers)]}
        if self.positions is not None and self.positions.specs():
            specs[self.positions.name] = self.positions.specs()
        if self.final_norm is not None:
            specs["final_norm"] = self.final_norm.specs()
        return specs

    @property
    def keeps_output(self) -> bool:
        """Whether the record holds what the stack returns: that of the last block does, where it is kept."""
        return self.final_norm is None and not self.remat

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what all blocks keep, L of each, of the last norm's record, and of positions."""
        shapes: dict[str, Tree] = {}
        if self.positions is not None:
            shapes[self.positions.name] = self.positions.record_shapes(shape)
            # A bias that is not learned is kept where tiles, or blocks that run again, need it.
            if not (self.remat or self.block.attention.tile or self.positions.specs()):
                shapes[self.positions.name].pop("bias", None)
        if self.final_norm is not None:
            shapes["final_norm"] = self.final_norm.record_shapes(shape)
        if self.remat:
            # What block 0 read was made before, what the last one returned is kept by a norm alone.
            return shapes | {"blocks": RecordShape((self.layers - (self.final_norm is None), *shape))}
        block = tree_map(
            lambda array: RecordShape((self.layers, *array.shape), array.dtype), self.block.record_shapes(shape)
        )
        return shapes | {"blocks": block}

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

        mask          broadcasts to (..., T, S): which keys are real, besides what the pattern allows
        memory_mask   the same for a memory (..., S, D), that blocks with a cross-attention look at
        """
        saved: dict[str, Tree] = {}
        places = None if self.positions is None else ops.positions(x, axis=-2)
        rotation = self._rotation(x, places if positions is None else positions)
        bias = self._bias(params, x, saved, places, places)
        extra_inputs = {"memory": memory, "bias": bias, "mask": mask, "memory_mask": memory_mask, "rotation": rotation}
        if self.remat:
            saved["extra_inputs"] = extra_inputs
        # Each block drops by a key of its own: with one for all, every block would lose the same channels.
        keys = [None if key is None else ops.fold_key(key, number) for number in range(self.layers)]
        x, saved["blocks"] = self.run_blocks(params["blocks"], x, extra_inputs, keys)
        if self.final_norm is not None:
            x, saved["final_norm"] = self.final_norm.forward(params["final_norm"], x)
        return x, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        """Return the gradients of x and of the memory, and of all parameters, for dy (..., T, D)."""
        grads: dict[str, Tree] = {}
        # y = norm(x)
        if self.final_norm is not None:
            dy, grads["final_norm"] = self.final_norm.backward(params["final_norm"], saved["final_norm"], dy)
        extra_inputs = saved.get("extra_inputs")
        read, grads["blocks"] = self.run_blocks_backward(params["blocks"], saved["blocks"], extra_inputs, dy)
        # bias = positions(rows, columns), read by every block: read.bias is the sum of what they sent back
        if self.positions is not None and self.positions.specs():
            name = self.positions.name
            _, grads[name] = self.positions.backward(params[name], saved[name], read.bias)
        return InputGrads(read.x, read.memory), grads

    @dispatched(by="x")
    def run_blocks(
        self, blocks: list[Tree], x: Array, extra_inputs: Tree, keys: list[Array | None]
    ) -> tuple[Array, Tree]:
        """Run one block after the other on x, with the inputs that all share; return the result and their records."""
        if not isinstance(blocks, list):
            raise ConfigError(
                "the parameters of the blocks are stacked, which these arrays cannot run as one loop",
                hint="give the blocks as a list, which `unstack_blocks` makes",
            )
        records = []
        for params, key in zip(blocks, keys, strict=True):
            x, record = self.run_block(params, x, extra_inputs, key)
            records.append(record)
        return x, records

    @dispatched(by="dy")
    def run_blocks_backward(
        self, blocks: list[Tree], records: list[Tree], extra_inputs: Tree, dy: Array
    ) -> tuple[InputGrads, list[Tree]]:
        """Return the gradients of what the blocks read, and of their parameters: the same list, reversed.

        Block n read what block n − 1 returned, so the dx of one is the dy of the one before.
        """
        grads: list[Tree] = []
        read = InputGrads(dy)
        for number in reversed(range(len(blocks))):
            record = records.pop() if isinstance(records, ConsumableRecords) else records[number]
            # x, record = run_block(params, x, extra_inputs, key)
            below, part = self.run_block_backward(blocks[number], record, extra_inputs, read.x)
            grads.insert(0, part)
            # Memory and bias were read by every block: their gradients add up.
            read = below.after(read)
        return read, grads

    @dispatched(by="x")
    def run_block(self, params: Tree, x: Array, extra_inputs: Tree, key: Array | None) -> tuple[Array, Tree]:
        """Run one block; return its result with its record, or with only what it takes to run it again."""
        y, record = self.block.forward(params, x, key=key, **extra_inputs)
        return y, RematInputs(x, key) if self.remat else record

    @dispatched(by="dy")
    def run_block_backward(self, params: Tree, record: Tree, extra_inputs: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        """Return the gradients of one block, which is run again first where its record was not kept."""
        if isinstance(record, RematInputs):
            _, record = self.block.forward(params, record.x, key=record.key, **extra_inputs)
        return self.block.backward(params, record, dy)

    # --- reading on, token by token ----------------------------------------------------------------------------------

    def new_cache(self) -> Cache:
        """Return a cache that has read nothing."""
        return Cache(self.layers, self.block.attention.pattern.window)

    def remember(self, params: Tree, memory: Array, cache: Cache, *, mask: Array | None = None) -> None:
        """Compute the keys and values of a memory for every block (..., S, D), once.

        Each block has key and value matrices of its own, so L pairs are kept, and the memory itself is needed no more.
        """
        assert self.block.cross_attention is not None
        for block_params, kept in zip(params["blocks"], cache.blocks, strict=True):
            kept.memory = self.block.cross_attention.remember(block_params["cross_attention"], memory)
        cache.memory_mask = mask

    def read(
        self, params: Tree, x: Array, cache: Cache, *, mask: Array | None = None, positions: Array | None = None
    ) -> Array:
        """Return what `forward` gives for further tokens x (..., T, D), which attend to all tokens in the cache.

        Reading a text in pieces gives the same vectors as reading it at once, for a causal block never looks ahead.

        mask   (..., T) True for those of the new tokens that are real
        """
        new = x.shape[-2]
        cache.note_padding(mask, tuple(x.shape[:-1]))
        rotation = self._rotation(x, cache.rows(new) if positions is None else positions, cache.capacity)
        x = self.read_blocks(params, x, cache, rotation)
        return x if self.final_norm is None else self.final_norm.forward(params["final_norm"], x)[0]

    @dispatched(by="x")
    def read_blocks(self, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None) -> Array:
        """Run all blocks on further tokens, each with what it remembers: the blocks' own `forward`, with a cache."""
        parameters = inspect.signature(self.block.forward).parameters.values()
        if not any(p.name == "cache" or p.kind is p.VAR_KEYWORD for p in parameters):
            raise self._reads_nothing("takes no cache")
        new = x.shape[-2]
        mask, bias = cache.key_mask(new), self._bias(params, x, {}, cache.rows(new), cache.columns(new))
        memory_mask = None if cache.memory_mask is None else cache.memory_mask[..., None, :]
        for block_params, kept in zip(params["blocks"], cache.blocks, strict=True):
            # A block that left its cache alone would attend to the new tokens only, and write on as if nothing had come
            # before: its cache must have grown.
            before = kept.attention.seen
            x, _ = self.block.forward(
                block_params, x, bias=bias, mask=mask, memory_mask=memory_mask, rotation=rotation, cache=kept
            )
            if kept.attention.seen is before:
                raise self._reads_nothing("does not hand its cache on to attention")
        return x

    def _reads_nothing(self, why: str) -> ConfigError:
        return ConfigError(
            f"{type(self.block).__name__}.forward {why}, so it cannot read on from where it stopped",
            hint="take cache=None and pass cache.attention to attention; or write without a cache (cache=False)",
        )

    # --- positions that enter through attention ----------------------------------------------------------------------

    def _rotation(self, x: Array, positions: Array, limit: int | None = None) -> tuple[Array, Array] | None:
        """Return cosines and sines (..., T, C/2) for the places of x, in its precision; None where nothing is turned.

        Angles are computed in float64, and only their cosines and sines are rounded: at place 100,000 neighbors among
        the numbers of float32 are 0.008 radians apart.
        """
        rotation = None if self.positions is None else self.positions.rotation(positions, limit)
        if rotation is None:
            return None
        cos, sin = (ops.astype(table, x, dtype=real_type(x)) for table in rotation)
        return cos, sin

    def _bias(self, params: Tree, x: Array, saved: dict[str, Tree], rows: Array, columns: Array) -> Array | None:
        """Return the bias (H, T, S) on the scores of queries at `rows` and keys at `columns`.

        While reading on, queries are the new tokens and keys all that the cache holds, in its order.
        """
        if self.positions is None:
            return None
        name = self.positions.name
        bias, record = self.positions.forward(params.get(name), rows, columns)
        if bias is None:
            return None
        # A bias with a record is learned, and in the type of its parameters; constants take that of x.
        if record is not None:
            saved[name] = record
            return bias
        return ops.astype(bias, x, dtype=real_type(x))
