"""The engine jax: the source as it is read, traced and compiled by JAX, for GPUs and many machines.

Its kernels compute whatever is given as JAX arrays, under whichever engine:

    elementary, attention   products of half precision in half precision, with sums in float32; special functions
    fused                   norms, GELU and the loss on a GPU, by kernels that read their arrays once
    cached_attention        attention to what was read before, on a GPU
    decoding                one more token of a single sequence, by few kernels on a GPU
    stack                   all blocks as one loop; the sharding of arrays over several devices
"""

import logging
from collections import ChainMap
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ...core.arrays import Tree
from ...core.dispatch import Engine, Kernel, Kernels, kernels_of
from .. import Executor


class Jax(Engine):
    """Everything on JAX's devices, compiled."""

    name = "jax"
    library = "jax"

    def kernels(self) -> list[Kernel]:
        from . import attention, cached_attention, decoding, elementary, fused, stack

        return kernels_of(attention, cached_attention, decoding, elementary, fused, stack)

    def table_for(self, array_type: type) -> Kernels:
        """Return the kernels for a type of array; where NumPy runs the blocks of a model, say so once."""
        kernels = super().table_for(array_type)
        if array_type is not np.ndarray:
            return kernels
        from ...layers import Stack

        def say(*_: Any, **__: Any) -> Any:
            self.tables[array_type] = kernels
            logging.getLogger("glassformer").warning(
                "the engine jax is in use, but the parameters are NumPy arrays, so NumPy computes; "
                "move them once: params = gf.tree.tree_map(jax.numpy.asarray, params)"
            )
            return NotImplemented

        kernel = Kernel(say, Stack.run_blocks)
        self.tables[array_type] = ChainMap({kernel.name: kernel}, kernels)  # type: ignore[assignment]
        return self.tables[array_type]

    def on_host(self, function: Callable[..., Any], like: Any, *arrays: Any) -> Any:
        import jax

        if isinstance(like, np.ndarray):
            return function(*arrays)
        return jax.pure_callback(function, jax.ShapeDtypeStruct(like.shape, like.dtype), *arrays)

    @cached_property
    def executor(self) -> Executor:
        return OnDevices()


class OnDevices(Executor):
    """Trains and reads by compiled programs, with arrays on the devices."""

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        from .trainer import JaxTrainer

        return JaxTrainer(*arguments, **settings)

    def reader(self, *arguments: Any, **settings: Any) -> Any:
        from .reader import make_reader

        return make_reader(*arguments, **settings)

    def check_storage(self, weights: str) -> None:
        from .reader import check_device_storage

        check_device_storage(weights)

    def stored(self, params: Tree, weights: str) -> Tree:
        from .reader import to_device

        return to_device(params, weights)


ENGINE = Jax()
