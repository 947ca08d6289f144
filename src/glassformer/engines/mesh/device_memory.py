"""Numbers and bytes that one device of a mesh holds of a model, and records of its own sequences."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from ...config import EncoderConfig, TransformerConfig
from ...core.arrays import Tree
from ...core.execution import Execution, MeshShape
from ...core.tree import named_leaves
from ...models import Model, build
from ...models.costs import record_bytes
from .rules import Axes, Rules, axes_for

PRECISIONS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number between embedding and loss."""

SLOTS = {"sgd": 0, "adam": 2, "adamw": 2, "lion": 1, "muon": 2}
"""Arrays that an optimizer remembers per parameter, unless told otherwise; Muon remembers one per matrix in a block."""

_TILE = 128  # any size: attention in tiles records what cuDNN records, which does not depend on it
_TABLE = "embedding.tokens.table"
MASTER = 4  # bytes of a number in parameters, gradients and what the optimizer remembers


class Leaf(NamedTuple):
    """Parameters that are alike in all blocks of a stack."""

    name: str  # "blocks.*.attention.query.w"
    shape: tuple[int, ...]
    alike: int

    @property
    def in_blocks(self) -> bool:
        return "blocks.*" in self.name

    @property
    def unit(self) -> str:
        """The parameters that are gathered at the same time: a block, or one array outside of the blocks."""
        return self.name.split("blocks.*")[0] + "blocks" if self.in_blocks else self.name

    def slots(self, optimizer: str) -> int:
        """Return the number of arrays of its size that the optimizer remembers."""
        hidden = len(self.shape) == 2 and self.in_blocks
        return 1 if optimizer == "muon" and hidden else SLOTS[optimizer]


@lru_cache(maxsize=64)
def leaves_of(config: TransformerConfig) -> tuple[Leaf, ...]:
    """Return the parameters of a model, those of alike blocks once."""
    alike = Counter(
        (re.sub(r"\bblocks\.\d+\.", "blocks.*.", name), spec.shape)
        for name, spec in named_leaves(build(config).specs())
    )
    return tuple(Leaf(name, shape, count) for (name, shape), count in alike.items())


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device: its part of a model, and its record of `rows` sequences."""

    config: TransformerConfig
    execution: Execution
    mesh: MeshShape
    rows: int
    length: int
    rules: Rules

    def axes(self, leaf: Leaf) -> Axes:
        """The axis of the mesh that splits each of its axes."""
        return axes_for(leaf.name, leaf.shape, self.mesh, self.rules)

    @property
    def itemsize(self) -> int:
        """Bytes of a number between embedding and loss."""
        return PRECISIONS[self.execution.precision]

    def held(self, leaf: Leaf, axes: tuple[str, ...] = ("fsdp", "tensor")) -> int:
        """Numbers of one such parameter that a device holds when it is split over these axes alone."""
        split = [axis for axis in self.axes(leaf) if axis in axes]
        return math.prod(leaf.shape) // math.prod(getattr(self.mesh, str(axis)) for axis in split)

    def is_gathered(self, leaf: Leaf) -> bool:
        """Whether it is split over fsdp, and so gathered where it is used."""
        return "fsdp" in self.axes(leaf)

    def numbers(self) -> int:
        """Parameters held."""
        return sum(leaf.alike * self.held(leaf) for leaf in leaves_of(self.config))

    def remembered(self, optimizer: str) -> int:
        """Numbers that the optimizer remembers."""
        return sum(leaf.slots(optimizer) * leaf.alike * self.held(leaf) for leaf in leaves_of(self.config))

    def matrices(self) -> tuple[Counter[str], Counter[str]]:
        """Numbers of what fsdp splits, gathered: of each unit in one block, and of each array outside of them."""
        inside: Counter[str] = Counter()
        outside: Counter[str] = Counter()
        for leaf in leaves_of(self.config):
            if self.is_gathered(leaf):
                (inside if leaf.in_blocks else outside)[leaf.unit] += self.held(leaf, ("tensor",))
        return inside, outside

    def tied(self) -> int:
        """Numbers of a table that serves the lookup and the head, and so has two gradients to add up."""
        _, outside = self.matrices()
        return outside[_TABLE] if has_token_head(self.config) and "head.w" not in outside else 0

    def in_use(self) -> int:
        """Bytes of weights as they are used, and of gradients before they are added up and shared out."""
        inside, outside = self.matrices()
        copied = self.mesh.fsdp > 1 or self.itemsize < MASTER
        in_blocks = max(inside.values(), default=0) * (2 * self.itemsize + MASTER) + self.tied() * MASTER
        after_blocks = max(3 * self.tied(), 2 * max(outside.values(), default=0)) * MASTER
        return sum(outside.values()) * self.itemsize * copied + max(in_blocks, after_blocks)

    @property
    def vector(self) -> int:
        """Bytes of one array (B, T, D) between sublayers."""
        return math.prod(self.model.stream_shape((self.rows, self.length))) * self.itemsize

    @property
    def looked_up(self) -> int:
        """Bytes of the tokens' rows (B, T, D), which are added up before they are rounded."""
        return self.rows * self.length * self.config.width * MASTER

    @cached_property
    def model(self) -> Model:
        """The model whose record is what this device records: with its part of the heads and of the hidden features."""
        c, tensor = self.config, self.mesh.tensor
        tile = self.execution.tile or (_TILE if self.itemsize < MASTER else None)
        narrow = {"heads": c.heads // tensor, "kv_heads": max(c.key_heads // tensor, 1), "head_width": c.channels}
        config = c.replace(**narrow, feed_forward=c.hidden // tensor)
        return build(config, self.execution.replace(tile=tile))

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """The number of blocks of each stack, and the bytes that one of them records."""
        x = self.model.stream_shape((self.rows, self.length))
        return [(stack.layers, self._bytes(stack.block.record_shapes(x))) for stack in self.model.stacks]

    def activations(self, *, remat: bool) -> int:
        """Bytes of the record."""
        everything = self._bytes(self.model.record_shapes((self.rows, self.length)))
        if not remat:
            return everything
        recorded = sum(count * size for count, size in self.blocks)
        inputs = sum(count for count, _ in self.blocks) * self.vector
        return everything - recorded + inputs + self.workspace()

    def workspace(self) -> int:
        """Bytes of the largest record of one block."""
        return max(size for _, size in self.blocks)

    def _bytes(self, shapes: Tree) -> int:
        return record_bytes(shapes, MASTER, self.execution)

    def logits(self) -> int:
        """Bytes of the logits, and of their logarithms in float32."""
        c = self.config
        each = self.itemsize + 4
        if isinstance(c, EncoderConfig) and not has_token_head(c):
            return self.rows * (c.classes or 0) * each
        return self.rows * self.length * (c.vocab // self.mesh.tensor) * each


def has_token_head(config: TransformerConfig) -> bool:
    """Return whether a model gives one logit for every token of its vocabulary."""
    return not isinstance(config, EncoderConfig) or config.head == "tokens"
