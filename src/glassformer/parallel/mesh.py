"""Devices in a grid of three axes, and how many stand along each.

    data      every device sees other sequences and holds the same parameters as its neighbors
    fsdp      sees other sequences too, but holds only a part of every matrix, which is gathered where it is used
    tensor    sees the same sequences; heads, hidden features and the vocabulary are split for good

Neighbors along `tensor` talk most and have consecutive numbers, so that they share a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from ..errors import ConfigError, did_you_mean

AXES = ("data", "fsdp", "tensor")


@dataclass(frozen=True)
class MeshShape:
    """How many devices stand along each axis; `str` and `parse` write and read "data=2,fsdp=2,tensor=2"."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            devices = getattr(self, field.name)
            if type(devices) is not int or devices < 1:
                raise ConfigError(
                    f"the mesh has {field.name}={devices!r}", hint="use a whole number of devices, at least 1"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "data=8,fsdp=64,tensor=8"; axes left out have one device."""
        sizes: dict[str, int] = {}
        for part in text.split(","):
            name, _, number = (piece.strip() for piece in part.partition("="))
            if not number.isascii() or not number.isdigit():
                raise ConfigError(f"cannot read the mesh {text!r}", hint="write it as data=8,fsdp=64,tensor=8")
            if name in sizes:
                raise ConfigError(f"the mesh {text!r} names {name} twice", hint="give every axis once")
            sizes[name] = int(number)
        return cls.from_dict(sizes)

    @classmethod
    def from_dict(cls, sizes: Mapping[str, Any]) -> Self:
        """Build the shape that `to_dict` described; refuse axes that do not exist."""
        for name in sizes:
            if name not in AXES:
                raise ConfigError(f"a mesh has no axis {name!r}", hint=did_you_mean(str(name), AXES))
        return cls(**sizes)

    def to_dict(self) -> dict[str, int]:
        """Return the devices along every axis, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return ",".join(f"{name}={devices}" for name, devices in self.to_dict().items())

    @property
    def size(self) -> int:
        """How many devices there are."""
        return self.data * self.fsdp * self.tensor

    @property
    def replicas(self) -> int:
        """Among how many devices the sequences of a batch are shared."""
        return self.data * self.fsdp


def shape_of(mesh: Any) -> MeshShape:
    """Return the shape of a `jax.sharding.Mesh` that `build_mesh` made."""
    return MeshShape.from_dict({str(name): int(devices) for name, devices in mesh.shape.items()})


def build_mesh(shape: MeshShape, devices: Sequence[Any] | None = None) -> Any:
    """Return a `jax.sharding.Mesh` of this shape over the devices: all that JAX sees, on all hosts, unless given."""
    jax = require_jax()
    from jax.experimental.mesh_utils import create_device_mesh

    found = jax.devices() if devices is None else list(devices)
    if len(found) != shape.size:
        raise ConfigError(
            f"the mesh {shape} needs {shape.size:,} devices, but there are {len(found):,}",
            hint=f"choose axes whose product is {len(found):,}, such as fsdp={len(found)}",
        )
    sizes = tuple(shape.to_dict().values())
    return jax.sharding.Mesh(create_device_mesh(sizes, devices=found), AXES)


def require_jax() -> Any:
    """Return the module `jax`, or say how to get it."""
    try:
        import jax
    except ImportError:
        raise ConfigError(
            "devices in a mesh need JAX, which is not installed",
            hint='pip install "glassformer[jax]"; for a GPU see the JAX documentation',
        ) from None
    return jax
