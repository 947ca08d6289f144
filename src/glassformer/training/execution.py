"""How a run is computed under JAX: in which precision, on how many devices, with what kept in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ..config import TransformerConfig
from ..errors import ConfigError, did_you_mean
from ..parallel.mesh import MeshShape, build_mesh
from ..parallel.rules import check_mesh
from .recipe import Recipe

PRECISIONS = ("float32", "bfloat16", "float16")

FUSED_TILE = 128
"""Tiles of attention for half precision where cuDNN's kernels do not cover a case."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings of the engine jax, stored with a run.

    precision   float32, with products of full precision; bfloat16 or float16: activations and products in that type,
                beside float32 parameters, gradients, sums and optimizer
    mesh        devices along data, fsdp and tensor
    scan        all blocks as one loop, which compiles in a time that does not grow with their number
    remat       keep only what each block read, and run it again in the backward pass
    """

    precision: str = "float32"
    mesh: MeshShape = field(default_factory=MeshShape)
    scan: bool = False
    remat: bool = False

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision is {self.precision!r}", hint=did_you_mean(self.precision, PRECISIONS))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build what `to_dict` described; refuse settings it does not know."""
        known = [setting.name for setting in fields(cls)]
        for name in settings:
            if name not in known:
                raise ConfigError(f"the engine jax has no setting {name!r}", hint=did_you_mean(name, known))
        return cls(**{**settings, "mesh": MeshShape.from_dict(settings.get("mesh", {}))})

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, ready for JSON."""
        return {
            "precision": self.precision,
            "mesh": self.mesh.to_dict(),
            "scan": self.scan,
            "remat": self.remat,
        }

    def check(self, config: TransformerConfig, recipe: Recipe) -> None:
        """Refuse a model or a batch that cannot be split in this way, and devices that are not there."""
        check_mesh(config, self.mesh)
        part = recipe.batch // recipe.accumulate
        if recipe.batch % recipe.accumulate:
            raise ConfigError(
                f"a batch of {recipe.batch} does not divide into {recipe.accumulate} microbatches",
                hint="the engine jax needs parts of the same size: change batch or accumulate",
            )
        if part % self.mesh.replicas:
            raise ConfigError(
                f"{part} sequences cannot be shared evenly by {self.mesh.replicas} devices "
                f"(data={self.mesh.data} times fsdp={self.mesh.fsdp})",
                hint=f"make the batch (of each microbatch) a multiple of {self.mesh.replicas}",
            )
        if self.mesh.size > 1:
            build_mesh(self.mesh)

    def applied(self, config: TransformerConfig) -> TransformerConfig:
        """Return the config of the model that computes in this way; its parameters are the same."""
        half = self.precision != "float32"
        tile = FUSED_TILE if half and config.attention_tile is None and _has_gpu() else config.attention_tile
        return config.replace(
            compute=self.precision if half else config.compute, remat=self.remat or config.remat, attention_tile=tile
        )


def _has_gpu() -> bool:
    import jax

    return jax.default_backend() == "gpu"
