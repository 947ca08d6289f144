"""The cores of this machine, and how a run that began with another number of them goes on with the same bits.

Sums are cut into parts by the number of cores, and so is the order in which they are added up. A run keeps the number
that it began with: where there are fewer cores they take turns, and where there are more, some have nothing to do.
"""

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Self

from ..engines.cpu.cores import at_most, cores


class Machine(NamedTuple):
    """What the last bits of sums depend on.

    cores   that compiled kernels share their work among
    blas    threads that a large matrix product has; None: not known
    """

    cores: int
    blas: int | None = None

    @classmethod
    def here(cls) -> Self:
        """Return this machine, as far as this process may use it."""
        return cls(cores(), _blas().get("num_threads"))

    def differs_here(self) -> bool:
        """Tell whether this process has other cores or threads."""
        here = self.here()
        return self.cores != here.cores or self.blas not in (None, here.blas)

    @contextlib.contextmanager
    def imitated(self) -> Iterator[None]:
        """Compute as this machine would, inside a `with` block."""
        from threadpoolctl import threadpool_limits

        with at_most(self.cores), threadpool_limits(self.blas, user_api="blas"):
            yield


def processor(engine: str) -> str | None:
    """Return for which kind of processor an engine computes here, as its libraries call it; None: they do not say."""
    if engine == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    return _blas().get("architecture")


def _blas() -> dict[str, Any]:
    """Return what is known about NumPy's BLAS."""
    library = _library()
    return {} if library is None else library.info()


@cache
def _library() -> Any | None:
    """Return NumPy's BLAS: to look through all libraries of a process takes longer than a step of a small model."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    of_numpy = [library for library in found if "numpy" in library.filepath]
    return next(iter(of_numpy or found), None)
