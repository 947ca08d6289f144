"""The engine cpu: hot ops and fused layers by loops that Numba compiles, a batch in shards over the cores.

activation dropout embedding linear loss norm position softmax update quantized    ops of the file of that name
attention/                        ops and layer; which file serves which case
block stack                       fused layers: a block, and one token through all blocks (decoding)
all_arrays                        all arrays of a model in one call: updates, sums
cores shards trainer              several cores at once, a batch shared out to them, and steps in place
compile lanes blas memory layout  what loops are made of
matvec quantized_rows fused       products at the speed of memory, and what fused layers share
"""

import logging
from collections.abc import Callable
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from ..reference import Reference

HOMES = (
    "activation", "all_arrays", "attention.dense", "attention.layer", "attention.tiled", "block", "dropout",
    "embedding", "linear", "loss", "norm", "position", "quantized", "softmax", "stack", "update",
)  # fmt: skip
"""Where the stand-ins are."""


class Cpu(Reference):
    """Stand-ins of the ops' names and signatures, compiled for this machine when first used."""

    name = "cpu"
    keeps_blocks = True

    def stand_ins(self) -> list[Callable[..., Any]]:
        """Return all stand-ins, ready for use; say so when they must be compiled first."""
        from .memory import keep_freed_memory

        keep_freed_memory()
        homes = [import_module(f"{__name__}.{home}") for home in HOMES]
        _announce()
        return [
            found
            for home in homes
            for found in vars(home).values()
            if isfunction(found) and hasattr(found, "stands_for") and found.__module__ == home.__name__
        ]

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        """Return a trainer of steps in place, of batches in shards."""
        from .trainer import InPlaceTrainer

        return InPlaceTrainer(*arguments, **settings)

    def shards(self, config: Any, batch: int) -> int:
        """Return in how many shards a batch is computed fastest on this machine."""
        from .shards import suitable_shards

        return suitable_shards(config, batch)


def _announce() -> None:
    """Say that stand-ins are still to be compiled, where none has been."""
    from .softmax import soften

    if not any(Path(soften._cache.cache_path).glob("*.nbi")):
        logging.getLogger("glassformer").warning(
            "compiling kernels for this machine: each takes about a second when first used, once"
        )


ENGINE = Cpu()
