"""What training takes on every device of a mesh, before anything is allocated: memory and messages.

Exact, to the byte: parameters, what the optimizer remembers and the moving average, all in float32, split by the rules.

Estimated: what lives for a part of a step, as if all of it lived at the same time. The blocks run as one loop (scan),
which gathers the weights and shares out the gradients of one block at a time; programs that do so for all at once take
more. What XLA compiles from small models for CPU devices, in float32, differs by less than a fifth
(`tests/parallel/test_plan.py`); other models, types and devices may differ by more.

    gradients     of what the device holds, in float32; twice where those of microbatches are added up
    in use        what is split over tensor alone while it is computed with. The matrices of a block: as they are used,
                  as the next ones come, and their gradients before they are added up. Of those outside of the blocks
                  a copy for the whole step where fsdp > 1 or in half precision, and gradients: those of a tied table
                  come from the head before the blocks run backward, and from the lookup after
    activations   the record of the forward pass. A device sees batch / (data · fsdp · accumulate) sequences and records
                  what a model with heads / tensor and hidden / tensor records, at full width: what stands between the
                  sublayers is not split. With remat, the input of every block and the record of one. In half precision
                  attention is tiled, as it is on a GPU, and keeps no weights.
    workspace     the gradients inside of one block while it runs backward: as much again as its record
    logits        those ids that are the device's own, before and, in float32, after the softmax of the loss

Messages are what each device sends in a step, by rings: n devices gather or reduce-scatter an array of s bytes by
sending s · (n − 1)/n each, and sum it up on all of them by sending twice that. Weights travel in the type of the
computation, gradients of parameters in float32; those of a tied table come twice, from the lookup and from the head. A
few numbers per token, for the softmax of the loss, are left out. How long it takes depends on the links.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..errors import ConfigError, did_you_mean
from ..models import build
from ..models.activations import activation_bytes
from ..tree import named_leaves
from .mesh import MeshShape
from .rules import axes_for, check_mesh

PRECISIONS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number between embedding and loss."""

SLOTS = {"sgd": 0, "adam": 2, "adamw": 2, "lion": 1, "muon": 2}
"""Arrays that an optimizer remembers per parameter, unless told otherwise; Muon remembers one per matrix in a block."""

_TILE = 128  # any size: records of tiled attention do not depend on it
_TABLE = "embedding.tokens.table"
MASTER = 4  # bytes of a number in parameters, gradients and what the optimizer remembers


class Message(NamedTuple):
    """What devices along one axis of the mesh tell each other in one step."""

    axis: str
    operation: str  # all-gather, reduce-scatter or all-reduce
    what: str
    size: int  # bytes of the array as a whole
    times: int  # per step
    sent: int  # bytes that each device sends per step


@dataclass(frozen=True)
class Plan:
    """What one step of training takes on each device; `memory` is in bytes."""

    config: TransformerConfig
    mesh: MeshShape
    batch: int
    length: int
    accumulate: int
    precision: str
    optimizer: str
    remat: bool
    ema: bool
    device_memory: int | None
    memory: dict[str, int]
    messages: tuple[Message, ...]

    EXACT: ClassVar[tuple[str, ...]] = ("parameters", "optimizer", "average")

    @property
    def total(self) -> int:
        """Bytes on each device."""
        return sum(self.memory.values())

    @property
    def largest(self) -> str:
        """What takes most."""
        return max(self.memory, key=lambda kind: self.memory[kind])

    @property
    def sent(self) -> int:
        """Bytes that each device sends per step."""
        return sum(message.sent for message in self.messages)

    @property
    def fits(self) -> bool | None:
        """Whether it fits into the devices' memory; None when that is not known."""
        return None if self.device_memory is None else self.total <= self.device_memory

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "config": self.config.to_dict(),
            "mesh": self.mesh.to_dict(),
            "devices": self.mesh.size,
            **{name: getattr(self, name) for name in ("batch", "length", "accumulate", "precision", "optimizer")},
            **{name: getattr(self, name) for name in ("remat", "ema")},
            "memory_bytes": {**self.memory, "total": self.total},
            "exact": [kind for kind in self.memory if kind in self.EXACT],
            "largest": self.largest,
            "messages": [message._asdict() for message in self.messages],
            "sent_bytes": self.sent,
            "device_memory": self.device_memory,
            "fits": self.fits,
        }


def plan(
    config: TransformerConfig,
    mesh: MeshShape,
    *,
    batch: int,
    length: int | None = None,
    precision: str = "bfloat16",
    optimizer: str = "adamw",
    remat: bool = False,
    ema: bool = False,
    accumulate: int = 1,
    device_memory: int | None = None,
) -> Plan:
    """Count what a step on `batch` sequences takes on each device of the mesh; nothing is allocated.

    length       tokens per sequence (None: the whole context)
    accumulate   in how many microbatches a step is computed
    """
    length = config.context if length is None else length
    remat = remat or config.remat
    _check(config, length, precision, optimizer)
    check_mesh(config, mesh)
    computing = config.replace(compute=precision) if PRECISIONS[precision] < MASTER else config
    local = _Local(computing, mesh, _rows(batch, mesh, accumulate), length)
    return Plan(
        config=config,
        mesh=mesh,
        batch=batch,
        length=length,
        accumulate=accumulate,
        precision=precision,
        optimizer=optimizer,
        remat=remat,
        ema=ema,
        device_memory=device_memory,
        memory=_memory(local, optimizer, accumulate, remat=remat, ema=ema),
        messages=_messages(local, accumulate, remat=remat),
    )


def _check(config: TransformerConfig, length: int, precision: str, optimizer: str) -> None:
    for name, given, known in (("precision", precision, PRECISIONS), ("optimizer", optimizer, SLOTS)):
        if given not in known:
            raise ConfigError(f"there is no {name} {given!r}", hint=did_you_mean(given, known))
    if not 1 <= length <= config.context:
        raise ConfigError(f"the length is {length:,}", hint=f"this model reads 1 to {config.context:,} tokens")


def _memory(local: _Local, optimizer: str, accumulate: int, *, remat: bool, ema: bool) -> dict[str, int]:
    """Return the bytes of every kind that there is."""
    counter = MASTER  # the number of the step
    memory = {
        "parameters": MASTER * local.numbers(),
        "optimizer": MASTER * local.remembered(optimizer) + counter,
        "average": (MASTER * local.numbers() + counter) * ema,
        "gradients": MASTER * local.numbers() * min(accumulate, 2),
        "in_use": local.in_use(),
        "activations": local.activations(remat=remat),
        "workspace": local.workspace(),
        "logits": local.logits(),
    }
    return {kind: size for kind, size in memory.items() if size}


def _rows(batch: int, mesh: MeshShape, accumulate: int) -> int:
    """Return how many sequences a device sees at a time."""
    parts = mesh.replicas * accumulate
    if batch < 1 or accumulate < 1 or batch % parts:
        raise ConfigError(
            f"a batch of {batch:,} sequences cannot be shared evenly by {mesh.replicas:,} devices (data · fsdp)"
            + (f" in {accumulate:,} microbatches" if accumulate != 1 else ""),
            hint=f"use a multiple of {max(parts, 1):,}",
        )
    return batch // parts


class _Leaf(NamedTuple):
    """Parameters that are alike in all blocks of a stack."""

    name: str  # "blocks.*.attention.query.w"
    shape: tuple[int, ...]
    alike: int

    @property
    def in_blocks(self) -> bool:
        return "blocks.*" in self.name

    @property
    def unit(self) -> str:
        """What is gathered at the same time: a block, or one array outside of the blocks."""
        return self.name.split("blocks.*")[0] + "blocks" if self.in_blocks else self.name

    def slots(self, optimizer: str) -> int:
        """How many arrays of its size the optimizer remembers."""
        hidden = len(self.shape) == 2 and self.in_blocks
        return 1 if optimizer == "muon" and hidden else SLOTS[optimizer]


@lru_cache(maxsize=64)
def _leaves(config: TransformerConfig) -> tuple[_Leaf, ...]:
    alike = Counter(
        (re.sub(r"\bblocks\.\d+\.", "blocks.*.", name), spec.shape)
        for name, spec in named_leaves(build(config).specs())
    )
    return tuple(_Leaf(name, shape, count) for (name, shape), count in alike.items())


@dataclass(frozen=True)
class _Local:
    """The share of one device."""

    config: TransformerConfig
    mesh: MeshShape
    rows: int
    length: int

    @property
    def itemsize(self) -> int:
        """Bytes of a number between embedding and loss."""
        return MASTER if self.config.compute is None else PRECISIONS[self.config.compute]

    def held(self, leaf: _Leaf, axes: tuple[str, ...] = ("fsdp", "tensor")) -> int:
        """Numbers of one such parameter that a device holds when it is split over these axes alone."""
        split = [axis for axis in axes_for(leaf.name, leaf.shape, self.mesh) if axis in axes]
        return math.prod(leaf.shape) // math.prod(getattr(self.mesh, str(axis)) for axis in split)

    def is_gathered(self, leaf: _Leaf) -> bool:
        """Whether it is split over fsdp, and so put together where it is used."""
        return "fsdp" in axes_for(leaf.name, leaf.shape, self.mesh)

    def numbers(self) -> int:
        """Parameters held."""
        return sum(leaf.alike * self.held(leaf) for leaf in _leaves(self.config))

    def remembered(self, optimizer: str) -> int:
        """Numbers that the optimizer remembers."""
        return sum(leaf.slots(optimizer) * leaf.alike * self.held(leaf) for leaf in _leaves(self.config))

    def matrices(self) -> tuple[Counter[str], Counter[str]]:
        """Numbers of what fsdp splits, put together: of each unit in one block, and of each array outside of them."""
        inside: Counter[str] = Counter()
        outside: Counter[str] = Counter()
        for leaf in _leaves(self.config):
            if self.is_gathered(leaf):
                (inside if leaf.in_blocks else outside)[leaf.unit] += self.held(leaf, ("tensor",))
        return inside, outside

    def tied(self) -> int:
        """Numbers of a table that serves the lookup and the head, and so has two gradients to add up."""
        _, outside = self.matrices()
        return outside[_TABLE] if _has_token_head(self.config) and "head.w" not in outside else 0

    def in_use(self) -> int:
        """Bytes of weights as they are used, and of gradients before they are added up and shared out."""
        inside, outside = self.matrices()
        copied = self.mesh.fsdp > 1 or self.itemsize < MASTER
        in_blocks = max(inside.values()) * (2 * self.itemsize + MASTER) + self.tied() * MASTER
        after_blocks = max(3 * self.tied(), 2 * max(outside.values())) * MASTER
        return sum(outside.values()) * self.itemsize * copied + max(in_blocks, after_blocks)

    @property
    def vector(self) -> int:
        """Bytes of one array (B, T, D) between sublayers."""
        extra = isinstance(self.config, EncoderConfig) and self.config.pooling == "cls"
        return self.rows * (self.length + extra) * self.config.width * self.itemsize

    @property
    def looked_up(self) -> int:
        """Bytes of the tokens' rows (B, T, D), which are added up before they are rounded."""
        return self.rows * self.length * self.config.width * MASTER

    def activations(self, *, remat: bool) -> int:
        """Bytes of the record."""
        whole = activation_bytes(self._narrow(), self.rows, self.length)
        if not remat:
            return whole
        recorded = sum(count * size for count, size in self._blocks())
        inputs = sum(count for count, _ in self._blocks()) * self.vector
        return whole - recorded + inputs + self.workspace()

    def workspace(self) -> int:
        """Bytes of the largest record of one block."""
        return max(size for _, size in self._blocks())

    def _narrow(self) -> TransformerConfig:
        """The model whose record is what a device records."""
        c, tensor = self.config, self.mesh.tensor
        return c.replace(
            heads=c.heads // tensor,
            kv_heads=c.key_heads // tensor,
            head_width=c.channels,
            feed_forward=c.hidden // tensor,
            attention_tile=c.attention_tile or (_TILE if self.itemsize == 2 else None),
            remat=False,
        )

    def _blocks(self) -> list[tuple[int, int]]:
        """How many blocks there are of each kind, and the bytes that one of them records."""
        narrow = self._narrow()

        def size(**layers: int) -> int:
            return activation_bytes(narrow.replace(**layers), self.rows, self.length)

        if isinstance(narrow, EncoderDecoderConfig):
            one = size(layers=1, encoder_layers=1)
            decoder, encoder = size(layers=2, encoder_layers=1) - one, size(layers=1, encoder_layers=2) - one
            return [(narrow.layers, decoder), (narrow.encoder_depth, encoder)]
        return [(narrow.layers, size(layers=2) - size(layers=1))]

    def logits(self) -> int:
        """Bytes of what the head says, and of its logarithms in float32."""
        c = self.config
        each = self.itemsize + 4
        if isinstance(c, EncoderConfig) and not _has_token_head(c):
            return self.rows * (c.classes or 0) * each
        return self.rows * self.length * (c.vocab // self.mesh.tensor) * each


def _messages(local: _Local, parts: int, *, remat: bool) -> tuple[Message, ...]:
    """Return what is sent in a step of so many microbatches, axis by axis."""
    mesh, leaves = local.mesh, _leaves(local.config)
    numbers = {leaf: leaf.alike * local.held(leaf, ("tensor",)) for leaf in leaves}
    inside = sum(n for leaf, n in numbers.items() if local.is_gathered(leaf) and leaf.in_blocks)
    outside = sum(n for leaf, n in numbers.items() if local.is_gathered(leaf) and not leaf.in_blocks)
    whole = sum(numbers.values()) - inside - outside
    size, tied = local.itemsize, local.tied()
    sums, lookups = _sums(local.config, remat=remat)
    found = [
        _message("fsdp", "all-gather", "weights of blocks, forward and backward", inside * size, 2 * parts, mesh),
        _message("fsdp", "all-gather", "other weights", outside * size, 1, mesh),
        _message("fsdp", "reduce-scatter", "gradients", (inside + outside + tied) * MASTER, parts, mesh),
        _message("fsdp", "all-reduce", "gradients of what is not split", whole * MASTER, parts, mesh),
        _message("data", "all-reduce", "gradients", (local.numbers() + tied // mesh.fsdp) * MASTER, parts, mesh),
        _message("tensor", "all-reduce", "activations and their gradients", local.vector, sums * parts, mesh),
        _message("tensor", "all-reduce", "rows of the tokens", local.looked_up, lookups * parts, mesh),
    ]
    return tuple(message for message in found if message.sent)


def _message(axis: str, operation: str, what: str, size: int, times: int, mesh: MeshShape) -> Message:
    devices = getattr(mesh, axis)
    passes = 2 if operation == "all-reduce" else 1
    return Message(axis, operation, what, size, times, times * -(-passes * size * (devices - 1) // devices))


def _sums(config: TransformerConfig, *, remat: bool) -> tuple[int, int]:
    """Count the sums over `tensor` of one microbatch: of activations and their gradients, and of tokens looked up.

    Forward one per sublayer; backward one per sublayer, one more where attention reads a memory, and one before the
    head. With remat the sublayers run forward again, but for the last of a block where no norm follows.
    """
    forward, backward, blocks = 2 * config.layers, 2 * config.layers, config.layers
    lookups = 1
    if isinstance(config, EncoderDecoderConfig):
        forward += config.layers + 2 * config.encoder_depth
        backward += 2 * config.layers + 2 * config.encoder_depth
        blocks += config.encoder_depth
        lookups = 2
    again = remat * (forward - blocks * (config.norm_position == "pre"))
    return forward + again + backward + _has_token_head(config), lookups


def _has_token_head(config: TransformerConfig) -> bool:
    return not isinstance(config, EncoderConfig) or config.head == "tokens"
