"""Real meshes of devices, from the shape that an `Execution` has."""

from collections.abc import Sequence
from typing import Any

from ...core.errors import ConfigError
from ...core.execution import AXES, MeshShape

__all__ = ["AXES", "MeshShape", "build_mesh", "require_jax", "shape_of"]


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
