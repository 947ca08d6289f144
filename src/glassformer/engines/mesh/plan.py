"""Memory and messages of training on every device of a mesh, before anything is allocated.

Exact, to the byte: parameters, what the optimizer remembers and the moving average, all in float32, split by the rules.

Estimated: what lives for a part of a step, as if all of it lived at the same time. The blocks run as one loop (scan),
which gathers the weights and shares out the gradients of one block at a time; programs that do so for all at once take
more. What XLA compiles from small models for CPU devices, in float32, differs by less than a fifth
(`tests/engines/mesh/test_plan.py`); other models, types and devices may differ by more.

    gradients     of what the device holds, in float32; twice where those of microbatches are added up
    in use        what is split over tensor alone while it is computed with. The matrices of a block: as they are used,
                  as the next ones come, and their gradients before they are added up. Of those outside of the blocks
                  a copy for the whole step where fsdp > 1 or in half precision, and gradients: those of a tied table
                  come from the head before the blocks run backward, and from the lookup after
    activations   the record of the forward pass. A device sees batch / (data · fsdp · accumulate) sequences and records
                  what a model with heads / tensor and hidden / tensor records, at full width: what stands between the
                  sublayers is not split. With remat, the input of every block and the record of one. In half precision
                  attention keeps no weights, as cuDNN computes it on a GPU.
    workspace     the gradients inside of one block while it runs backward: as much again as its record
    logits        those ids that are the device's own, before and, in float32, after the softmax of the loss

Messages are what each device sends in a step, by rings: n devices gather or reduce-scatter an array of s bytes by
sending s · (n − 1)/n each, and sum it up on all of them by sending twice that. Weights travel in the type of the
computation, gradients of parameters in float32; those of a tied table come twice, from the lookup and from the head. A
few numbers per token, for the softmax of the loss, are left out. How long it takes depends on the links.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple

from ...config import EncoderDecoderConfig, TransformerConfig
from ...core.errors import ConfigError
from ...core.execution import Execution, MeshShape
from ...core.settings import check_known
from .device_memory import MASTER, PRECISIONS, SLOTS, DeviceMemory, has_token_head, leaves_of
from .rules import RULES, Rules, check_mesh

__all__ = ["PRECISIONS", "SLOTS", "Message", "Plan", "better", "changes", "plan"]

MOST_TENSOR = 8
"""Devices along `tensor` exchange messages inside of every block, so they should share a machine."""

MORE_DEVICES = (1, 2, 4, 8, 16, 32, 64, 128)


class Message(NamedTuple):
    """A kind of message that devices along one axis of the mesh send each other in one step."""

    axis: str
    operation: str  # all-gather, reduce-scatter or all-reduce
    what: str
    size: int  # bytes of the array as a whole
    times: int  # per step
    sent: int  # bytes that each device sends per step


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Memory and messages of a step on `batch` sequences, on each device of a mesh.

    length       tokens per sequence
    accumulate   in how many microbatches a step is computed
    tile         attention in tiles, of whatever size, which keep no weights; half precision keeps none in any case
    rules        how parameters are split; `parse_rules` puts your own before the table
    """

    config: TransformerConfig
    mesh: MeshShape
    batch: int
    length: int
    accumulate: int = 1
    precision: str = "bfloat16"
    optimizer: str = "adamw"
    remat: bool = False
    ema: bool = False
    device_memory: int | None = None
    tile: int | None = None
    rules: Rules = RULES

    EXACT: ClassVar = ("parameters", "optimizer", "average")
    SETTINGS: ClassVar = ("batch", "length", "accumulate", "precision", "optimizer", "remat", "ema")

    def __post_init__(self) -> None:
        check_known("there is no precision", self.precision, PRECISIONS)
        check_known("there is no optimizer", self.optimizer, SLOTS)
        context, parts = self.config.context, self.mesh.replicas * self.accumulate
        if not 1 <= self.length <= context:
            raise ConfigError(f"the length is {self.length:,}", hint=f"this model reads 1 to {context:,} tokens")
        check_mesh(self.config, self.mesh, self.rules)
        if self.batch < 1 or self.accumulate < 1 or self.batch % parts:
            raise ConfigError(
                f"a batch of {self.batch:,} sequences cannot be shared evenly by {self.mesh.replicas:,} devices "
                "(data · fsdp)" + (f" in {self.accumulate:,} microbatches" if self.accumulate != 1 else ""),
                hint=f"use a multiple of {max(parts, 1):,}",
            )

    @cached_property
    def local(self) -> DeviceMemory:
        """The memory of one device."""
        rows = self.batch // (self.mesh.replicas * self.accumulate)
        execution = Execution(precision=self.precision, tile=self.tile)
        return DeviceMemory(self.config, execution, self.mesh, rows, self.length, self.rules)

    @cached_property
    def memory(self) -> dict[str, int]:
        """Bytes of every kind that there is."""
        local, counter = self.local, MASTER  # the number of the step
        numbers = MASTER * local.numbers()
        memory = {
            "parameters": numbers,
            "optimizer": MASTER * local.remembered(self.optimizer) + counter,
            "average": (numbers + counter) * self.ema,
            "gradients": numbers * min(self.accumulate, 2),
            "in_use": local.in_use(),
            "activations": local.activations(remat=self.remat),
            "workspace": local.workspace(),
            "logits": local.logits(),
        }
        return {part: size for part, size in memory.items() if size}

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages of a step, axis by axis."""
        local, mesh, parts = self.local, self.mesh, self.accumulate
        numbers = {leaf: leaf.alike * local.held(leaf, ("tensor",)) for leaf in leaves_of(self.config)}
        inside = sum(n for leaf, n in numbers.items() if local.is_gathered(leaf) and leaf.in_blocks)
        outside = sum(n for leaf, n in numbers.items() if local.is_gathered(leaf) and not leaf.in_blocks)
        unsplit = sum(numbers.values()) - inside - outside
        size, tied = local.itemsize, local.tied()
        sums, lookups = _sums(self.config, remat=self.remat)
        every = [
            _message("fsdp", "all-gather", "weights of blocks, forward and backward", inside * size, 2 * parts, mesh),
            _message("fsdp", "all-gather", "other weights", outside * size, 1, mesh),
            _message("fsdp", "reduce-scatter", "gradients", (inside + outside + tied) * MASTER, parts, mesh),
            _message("fsdp", "all-reduce", "gradients of what is not split", unsplit * MASTER, parts, mesh),
            _message("data", "all-reduce", "gradients", (local.numbers() + tied // mesh.fsdp) * MASTER, parts, mesh),
            _message("tensor", "all-reduce", "activations and their gradients", local.vector, sums * parts, mesh),
            _message("tensor", "all-reduce", "rows of the tokens", local.looked_up, lookups * parts, mesh),
        ]
        return tuple(message for message in every if message.sent)

    @property
    def total(self) -> int:
        """Bytes on each device."""
        return sum(self.memory.values())

    @property
    def largest(self) -> str:
        """The part that takes most memory."""
        return max(self.memory, key=lambda part: self.memory[part])

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
            **{name: getattr(self, name) for name in self.SETTINGS},
            "memory_bytes": {**self.memory, "total": self.total},
            "exact": [part for part in self.memory if part in self.EXACT],
            "largest": self.largest,
            "messages": [message._asdict() for message in self.messages],
            "sent_bytes": self.sent,
            "device_memory": self.device_memory,
            "fits": self.fits,
        }


def plan(config: TransformerConfig, mesh: MeshShape, *, length: int | None = None, **settings: Any) -> Plan:
    """Count what a step takes on each device, on sequences as long as the context unless told; nothing is allocated."""
    return Plan(config=config, mesh=mesh, length=config.context if length is None else length, **settings)


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
    return forward + again + backward + has_token_head(config), lookups


# --- what to change when a plan does not fit --------------------------------------------------------------------------


def better(refused: Plan) -> Plan | None:
    """Return the cheapest plan that fits, for the same model, batch and numbers; None if none was found.

    On the devices given, few kinds of change come before many, and among as many kinds the order is: fsdp in the place
    of data (more messages), more microbatches (smaller products), remat (up to a third more arithmetic), tensor
    (messages inside of every block). If nothing helps, the same on more devices.
    """
    for more in MORE_DEVICES:
        candidates = sorted(_candidates(refused, more), key=lambda candidate: _price(refused, candidate))
        for mesh, accumulate, remat in candidates:
            try:
                tried = replace(refused, mesh=mesh, accumulate=accumulate, remat=remat)
                if tried.fits:
                    return tried
            except ConfigError:  # this mesh does not divide the model or the batch
                continue
    return None


def changes(refused: Plan, other: Plan) -> list[str]:
    """Return in words what `other` does differently."""
    before, after = refused.mesh, other.mesh
    words = {
        f"{after.size:,} devices instead of {before.size:,}": after.size != before.size,
        f"the mesh {after}": after != before,
        f"{other.accumulate:,} microbatches per step (accumulate)": other.accumulate != refused.accumulate,
        "remat": other.remat and not refused.remat,
    }
    return [word for word, differs in words.items() if differs]


Candidate = tuple[MeshShape, int, bool]


def _candidates(refused: Plan, more: int) -> Iterator[Candidate]:
    mesh = refused.mesh
    tensors = {mesh.tensor} | {n for n in (2, 4, 8) if mesh.tensor < n <= MOST_TENSOR and n % mesh.tensor == 0}
    for tensor in sorted(tensors):
        for fsdp in _divisors(mesh.data * mesh.fsdp * more):
            if mesh.size * more % (fsdp * tensor) == 0 and fsdp >= mesh.fsdp // (tensor // mesh.tensor):
                shape = MeshShape(mesh.size * more // (fsdp * tensor), fsdp, tensor)
                rows = refused.batch // (shape.replicas * refused.accumulate)
                pieces = [refused.accumulate * n for n in _divisors(rows)] if rows else []
                yield from ((shape, *rest) for rest in product(pieces, {refused.remat, True}))


def _price(refused: Plan, candidate: Candidate) -> tuple:
    """Sort by how many kinds of change, then by which, then by how much."""
    mesh, accumulate, remat = candidate
    changes = (
        mesh.tensor != refused.mesh.tensor,
        remat != refused.remat,
        accumulate != refused.accumulate,
        mesh.fsdp > refused.mesh.fsdp,
    )
    return sum(changes), changes, mesh.tensor, accumulate, mesh.fsdp


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
