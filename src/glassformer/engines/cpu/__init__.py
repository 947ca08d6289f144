"""The engine cpu: hot ops by loops that Numba compiles, a batch in shards over the cores.

elementwise rowwise linear update      ops: of single numbers, of rows, matrix products, optimizer steps
attention                              ops.attention, which keeps its weights
attention_tiled tiles                  ops.attention_tiled: sequences whose weights would fill the memory
decode                                 one more token of a few sequences, through all blocks
parts quantized_rows simd              products at the speed of memory, as parts that any core may take
products                               matrix products by the address of a BLAS, and of tiles in vector registers
cores                                  several cores at once
trainer                                batches shared out to the cores, and steps in place
compile                                how kernels are compiled and kept on disk
"""

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from ...core.dispatch import Engine, Kernel, kernels_of
from .. import Executor

HOMES = ("attention", "attention_tiled", "decode", "elementwise", "linear", "rowwise", "update")
"""The modules with kernels."""

# The names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_VARIABLES = ("MALLOC_ARENA_", "MALLOC_MMAP_", "MALLOC_TRIM_", "MALLOC_TOP_", "GLIBC_TUNABLES")
_LARGEST = 1 << 25  # bytes; the most that glibc lets stay: larger blocks come from the system each time


class OnCores(Executor):
    """Trains in place and in shards, one for each core."""

    keeps_blocks = True

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        from .trainer import InPlaceTrainer

        return InPlaceTrainer(*arguments, **settings)

    def shards(self, config: Any, batch: int) -> int:
        from .trainer import suitable_shards

        return suitable_shards(config, batch)

    def each(self, tasks: Iterable[Callable[[], Any]]) -> list[Any]:
        from .cores import each

        return each(tasks)

    def beside(self, job: Callable[..., Any]) -> AbstractContextManager[Callable[..., Any]]:
        from .cores import beside

        return beside(job)


class Cpu(Engine):
    """Kernels compiled for this machine when first used."""

    name = "cpu"

    def kernels(self) -> list[Kernel]:
        from .compile import has_compiled_kernels

        keep_freed_memory()
        if not has_compiled_kernels():
            logging.getLogger("glassformer").warning(
                "compiling kernels for this machine: each takes about a second when first used, once"
            )
        return kernels_of(*(import_module(f"{__name__}.{home}") for home in HOMES))

    @cached_property
    def executor(self) -> Executor:
        return OnCores()


@cache
def keep_freed_memory() -> bool:
    """Set malloc to keep what is freed, in one pool for all threads; return whether this C library has the setting.

    By default the C library gives large freed blocks back to the system, which clears their pages again, one by one,
    when the next step touches them. Training asks for the same sizes at every step. The setting holds for the whole
    process: if one of the C library's own variables is set, nothing is changed.
    """
    if not sys.platform.startswith("linux") or any(name.startswith(_VARIABLES) for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, 1 << 30), (_M_ARENA_MAX, 1))
    done = [mallopt(name, value) == 1 for name, value in settings]
    return all(done)


ENGINE = Cpu()
