"""Who executes the mathematics.

    cpu      the default: hot ops as compiled kernels, a batch in shards over the cores; needs Numba
    numpy    every op and layer as its source reads; needs NumPy alone
    jax      the same source traced and compiled, for GPUs and many machines; needs JAX

Each is one value, an `Engine`: its kernels, and its `Executor`, which trains and reads with them. An op runs where its
arrays are: given JAX arrays, JAX computes it whatever the engine; given NumPy arrays under the engine jax, the host
does.
"""

import importlib
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.arrays import Tree
from ..core.dispatch import Engine
from ..core.errors import ConfigError
from ..core.settings import check_known

if TYPE_CHECKING:
    from ..layers import Stack

ENGINES = ("cpu", "numpy", "jax")
_NEEDS = {
    "cpu": ("numba", "Numba", "pip install numba, or use the engine numpy"),
    "jax": ("jax", "JAX", 'pip install "glassformer[jax]"; for a GPU see the JAX documentation'),
}
"""What an engine needs: its module, its name, and how to install it."""


class Executor:
    """Trains, reads and keeps weights with the kernels of an engine; this one for NumPy arrays."""

    keeps_blocks = False
    """Whether weights that a file stores in blocks are best used as they are."""

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        """Return what takes the steps of a training run: a `Trainer`."""
        from ..training.trainer import Trainer

        return Trainer(*arguments, **settings)

    def reader(self, *arguments: Any, **settings: Any) -> Any:
        """Return what reads while a model writes: a `Reader`."""
        from ..generation.reader import CachedReader

        return CachedReader(*arguments, **settings)

    def check_storage(self, weights: str) -> None:
        """Refuse a way to keep weights that this engine does not know."""
        from ..generation.storage import check_storage

        check_storage(weights)

    def stored(self, params: Tree, weights: str) -> Tree:
        """Return a model's parameters kept in such a way, where this engine reads them."""
        from ..generation.storage import stored

        return stored(params, weights)

    def shards(self, config: Any, batch: int) -> int:
        """Return in how many parts at a time a batch of this many sequences is computed fastest."""
        return 1

    def each(self, tasks: Iterable[Callable[[], Any]]) -> list[Any]:
        """Run tasks that do not need each other, perhaps at the same time; return their results in order."""
        return [task() for task in tasks]

    def beside(self, job: Callable[..., Any]) -> AbstractContextManager[Callable[..., Any]]:
        """Return a context that may let another process call `job`, and gives what returns its result, or calls it."""
        return nullcontext(job)


class Reference(Engine):
    """The engine numpy, without kernels: every op and layer as its source reads, in NumPy alone."""

    name = "numpy"


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


def find_for(array_type: type, engine: Engine) -> Engine:
    """Return the engine that is at home with a type of arrays: `engine`, if it is."""
    library = "jax" if array_type.__module__.partition(".")[0] in ("jax", "jaxlib") else "numpy"
    return engine if engine.library == library else find("jax" if library == "jax" else None)


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
    residuals = [(type(residual), residual.name) for residual in block.residuals]
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
