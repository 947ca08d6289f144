"""Who executes the mathematics.

    cpu      the default: hot ops as compiled kernels, a batch in shards over the cores; needs Numba
    numpy    every op and layer as its source reads; needs NumPy alone
    jax      the same source traced and compiled, for GPUs and many machines; needs JAX

Each is one value, an `Engine`: its kernels, its trainer and its reader. An op runs where its arrays are: given JAX
arrays, JAX computes it whatever the engine; given NumPy arrays under the engine jax, the host does.
"""

import importlib
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.dispatch import Engine, later
from ..core.errors import ConfigError
from ..core.setting import check_known

if TYPE_CHECKING:
    from ..layers import Stack

ENGINES = ("cpu", "numpy", "jax")
_NEEDS = {
    "cpu": ("numba", "Numba", "pip install numba, or use the engine numpy"),
    "jax": ("jax", "JAX", 'pip install "glassformer[jax]"; for a GPU see the JAX documentation'),
}
"""What an engine needs: its module, its name, and how to install it."""


class Reference(Engine):
    """The engine numpy, without kernels: every op and layer as its source reads, in NumPy alone."""

    name = "numpy"

    trainer = later("glassformer.training.trainer", "Trainer")
    reader = later("glassformer.generation.reader", "CachedReader")
    check_storage = later("glassformer.generation.storage", "check_storage")
    stored = later("glassformer.generation.storage", "stored")


REFERENCE = Reference()


def find(name: str | None = None) -> Engine:
    """Return an engine by name; None: cpu where Numba is installed, else numpy."""
    if name is None:
        name = "cpu" if is_installed("cpu") else "numpy"
    check_known("there is no engine", name, ENGINES)
    if not is_installed(name):
        _, title, hint = _NEEDS[name]
        raise ConfigError(f"the engine {name} needs {title}, which is not installed", hint=hint)
    return REFERENCE if name == "numpy" else importlib.import_module(f"{__name__}.{name}").ENGINE


def find_for(array_type: type, own: Engine) -> Engine:
    """Return the engine that is at home with a type of arrays: `own`, if it is."""
    library = "jax" if array_type.__module__.partition(".")[0] in ("jax", "jaxlib") else "numpy"
    return own if own.library == library else find("jax" if library == "jax" else None)


def gather(folder: Path) -> None:
    """Write the newest state of a run into one file where many processes wrote it; this needs JAX only if they did."""
    importlib.import_module(f"{__name__}.jax.sharded_checkpoint").gather(folder)


def is_readable(stack: "Stack", activations: Collection[str]) -> bool:
    """Return whether kernels of one more token can read a stack: a decoder's, norms first, of no derived classes.

    activations   those that the kernels compute
    """
    from ..layers import Attention, Block, FeedForward, LayerNorm, Linear, Residual, RMSNorm, RotaryPositions

    block = stack.block
    attention, feed_forward = block.attention, block.feed_forward
    residuals = [(type(one), one.name) for one in block.residuals]
    return (
        (type(block), type(attention), type(feed_forward)) == (Block, Attention, FeedForward)
        and residuals == [(Residual, "attention"), (Residual, "feed_forward")]
        and all(type(part) is Linear for layer in (attention, feed_forward) for part in layer.parts.values())
        and type(block.norm) in (LayerNorm, RMSNorm)
        and block.norm_position == "pre"
        and type(stack.positions) in (type(None), RotaryPositions)
        and attention.pattern.stride is None
        and attention.pairing in ("halves", "interleaved")
        and feed_forward.activation in activations
    )


def is_installed(name: str) -> bool:
    try:
        return name not in _NEEDS or find_spec(_NEEDS[name][0]) is not None
    except ValueError:  # made unavailable on purpose
        return False
