"""The execution of a model: precision, memory, devices. No setting here changes what is computed.

A mesh has three axes:

    data      every device sees other sequences and holds the same parameters as its neighbors
    fsdp      sees other sequences too, but holds only a part of every matrix, which is gathered where it is used
    tensor    sees the same sequences; heads, hidden features and the vocabulary are split for good

Neighbors along `tensor` talk most and have consecutive numbers, so that they share a machine.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from .errors import ConfigError
from .settings import check_known, check_range, check_settings, check_types, from_settings

PRECISIONS = ("float32", "bfloat16", "float16")
AXES = ("data", "fsdp", "tensor")


@dataclass(frozen=True)
class MeshShape:
    """The number of devices along each axis; `str` and `parse` write and read "data=2,fsdp=2,tensor=2"."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        check_types(self, " of the mesh")
        check_range(self, *AXES, least=1, of=" of the mesh")

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
        return from_settings("a mesh has no axis", sizes, cls)

    def to_dict(self) -> dict[str, int]:
        """Return the devices along every axis, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return ",".join(f"{name}={devices}" for name, devices in self.to_dict().items())

    @property
    def size(self) -> int:
        """The number of devices."""
        return self.data * self.fsdp * self.tensor

    @property
    def replicas(self) -> int:
        """Among how many devices the sequences of a batch are shared."""
        return self.data * self.fsdp


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The settings of how a model runs.

    precision   float32: in the type of the parameters; bfloat16 or float16: activations and products in that type,
                beside float32 parameters, gradients, sums and optimizer
    tile        attention in tiles of this size, memory linear in length (none: all weights at once)
    remat       keep only what each block read, and run it again in the backward pass
    mesh        devices along data, fsdp and tensor
    rules       how parameters are split over it, by patterns of their names, where the table of `mesh.rules` is not to
    scan        all blocks as one loop, which compiles in a time that does not grow with their number
    """

    precision: str = "float32"
    tile: int | None = None
    remat: bool = False
    mesh: MeshShape = field(default_factory=MeshShape)
    scan: bool = False
    rules: tuple[tuple[str, tuple[str | None, ...]], ...] = ()

    def __post_init__(self) -> None:
        check_known("precision is", self.precision, PRECISIONS)
        check_types(self)
        check_range(self, "tile", least=1)

    @property
    def half(self) -> str | None:
        """The half precision that is computed in, None where it is full."""
        return None if self.precision == "float32" else self.precision

    def replace(self, **settings: Any) -> Self:
        """Return the same with some settings changed."""
        check_settings("execution has no setting", settings, type(self))
        return replace(self, **settings)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build what `to_dict` described; refuse settings it does not know."""
        rules = tuple((pattern, tuple(axes)) for pattern, axes in settings.get("rules", ()))
        settings = {**settings, "mesh": MeshShape.from_dict(settings.get("mesh", {})), "rules": rules}
        return from_settings("execution has no setting", settings, cls)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, ready for JSON."""
        always = {"precision": self.precision, "mesh": self.mesh.to_dict(), "scan": self.scan, "remat": self.remat}
        return {
            **always,
            **({} if self.tile is None else {"tile": self.tile}),
            **({"rules": [[pattern, list(axes)] for pattern, axes in self.rules]} if self.rules else {}),
        }


PLAIN = Execution()
"""As a model runs unless told otherwise."""

# Settings of execution were once settings of a model, and are still taken beside them.
AMONG_MODEL_SETTINGS = {"attention_tile": "tile", "compute": "precision", "remat": "remat"}


def separated(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort settings given together into those of a model and those of its execution."""
    model = {name: value for name, value in settings.items() if name not in AMONG_MODEL_SETTINGS}
    execution = {AMONG_MODEL_SETTINGS[name]: value for name, value in settings.items() if name not in model}
    if execution.get("precision", "") is None:
        execution["precision"] = "float32"
    return model, execution


def joined(execution: Execution) -> dict[str, Any]:
    """Return the settings of an execution that stand beside those of a model, where they differ from the defaults."""
    return {
        old: getattr(execution, name)
        for old, name in AMONG_MODEL_SETTINGS.items()
        if getattr(execution, name) != getattr(PLAIN, name)
    }
