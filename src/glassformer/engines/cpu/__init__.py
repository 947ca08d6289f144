"""The engine cpu: hot ops by loops that Numba compiles, a batch in shards over the cores.

activation dropout embedding linear loss norm position softmax update    ops of the file of that name
attention/                              its ops; which file serves which case
stack                                   one more token of a few sequences, through all blocks
cores trainer                           several cores at once; batches shared out to them, and steps in place
compile vectorized_rows                 what loops are made of
kernel_cache second_process             compiled code on disk; a second process that computes
products mkl                            matrix products by the address of a BLAS
parts quantized_rows thread_pool        products at the speed of memory, as parts that any core may take
"""

import ctypes
import logging
import os
import sys
from functools import cache
from importlib import import_module

from ...core.dispatch import Kernel, kernels_of, later
from .. import Reference

HOMES = (
    "activation", "attention.dense", "attention.tiled", "dropout", "embedding", "linear", "loss",
    "norm", "position", "softmax", "stack", "update",
)  # fmt: skip
"""The modules with kernels."""

# The names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_VARIABLES = ("MALLOC_ARENA_", "MALLOC_MMAP_", "MALLOC_TRIM_", "MALLOC_TOP_", "GLIBC_TUNABLES")
_LARGEST = 1 << 25  # bytes; the most that glibc lets stay: larger blocks come from the system each time


class Cpu(Reference):
    """Kernels compiled for this machine when first used."""

    name = "cpu"
    keeps_blocks = True

    def kernels(self) -> list[Kernel]:
        from .kernel_cache import has_compiled_kernels

        keep_freed_memory()
        if not has_compiled_kernels():
            logging.getLogger("glassformer").warning(
                "compiling kernels for this machine: each takes about a second when first used, once"
            )
        return kernels_of(*(import_module(f"{__name__}.{home}") for home in HOMES))

    each = later(f"{__name__}.cores", "each")
    beside = later(f"{__name__}.second_process", "beside")
    trainer = later(f"{__name__}.trainer", "InPlaceTrainer")
    shards = later(f"{__name__}.trainer", "suitable_shards")


@cache
def keep_freed_memory() -> bool:
    """Let malloc keep what is freed, in one pool for all threads; tell whether this C library can be told so.

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
