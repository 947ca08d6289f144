"""How a model's weights are kept on JAX's devices: float32, or bfloat16 or float16, in which it then computes."""

from typing import Any

from ...arrays import Tree, is_integer
from ...errors import ConfigError
from ...generation.storage import STORAGES
from ...quantized import Quantized
from ...settings import check_known
from ...tree import tree_map

DEVICE_STORAGES = ("float32", "bfloat16", "float16")


def check_device_storage(weights: str) -> None:
    """Refuse a way to keep weights that the engine jax does not know."""
    if weights in STORAGES and weights not in DEVICE_STORAGES:
        raise ConfigError(
            f"the engine jax does not keep weights as {weights}",
            hint=f"choose one of {', '.join(DEVICE_STORAGES)}, or the engine cpu",
        )
    check_known("weights cannot be kept as", weights, DEVICE_STORAGES)


def placed(params: Tree, weights: str | None = None) -> Tree:
    """Return parameters as JAX arrays, kept as `weights` (None: as they are); what is on a device already stays there.

    Weights in blocks become float32 numbers: only the engines on the host multiply from blocks.
    """
    import jax.numpy as jnp

    if weights is not None:
        check_device_storage(weights)

    def place(leaf: Any) -> Any:
        x = jnp.asarray(leaf.dequantize() if isinstance(leaf, Quantized) else leaf)
        return x if weights is None or is_integer(x) else x.astype(weights)

    return tree_map(place, params)
