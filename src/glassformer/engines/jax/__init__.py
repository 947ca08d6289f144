"""The engine jax: the source as it is read, traced and compiled by JAX, for GPUs and many machines.

Its kernels compute whatever is given as JAX arrays, under whichever engine:

    elementary, attention   products of half precision in half precision, with sums in float32; special functions
    fused/                  norms, GELU, the loss and attention on a GPU, by kernels that read their arrays once
    position, cache         positions that are not known yet, and a cache of fixed size
    stack                   all blocks as one loop; what is said of arrays that lie on several devices
"""

from typing import Any

from ...dispatch import Engine, Kernel, kernels_of


class Jax(Engine):
    """Everything on JAX's devices, compiled."""

    name = "jax"
    library = "jax"

    def kernels(self) -> list[Kernel]:
        """Return all kernels of the modules beside this one."""
        from . import attention, cache, elementary, position, stack
        from .fused import activation, loss, norm

        return kernels_of(attention, cache, elementary, position, stack, activation, loss, norm)

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        """Return a trainer whose step is one compiled program."""
        from .trainer import JaxTrainer

        return JaxTrainer(*arguments, **settings)

    def reader(self, *arguments: Any, **settings: Any) -> Any:
        """Return a reader whose programs are compiled, and which can also write."""
        from .reader import JaxReader

        return JaxReader(*arguments, **settings)

    def check_storage(self, weights: str) -> None:
        """Refuse a way to keep weights that only other engines know."""
        from .reader import check_device_storage

        check_device_storage(weights)

    def stored(self, params: Any, weights: str) -> Any:
        """Return a model's parameters on the device, kept in such a way."""
        from .reader import placed

        return placed(params, weights)


ENGINE = Jax()
