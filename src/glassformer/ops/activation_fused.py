"""GELU in half precision on a GPU, by kernels that read and write whole runs of numbers at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, namespace
from ..backend import on_one_gpu
from .gpu import runs_kernels

_RUN = 2048  # numbers that a program computes
_WARPS = 4


def can_fuse(x: Array) -> bool:
    """Tell whether the kernels cover an array: large, of half precision, on one GPU."""
    namespace(x)
    fits = 1 << 20 <= x.size < 1 << 31 and x.size % _RUN == 0  # beyond, a place has no number of 32 bits
    return x.dtype.itemsize == 2 and fits and on_one_gpu(x) and runs_kernels()


def elementwise(function: Callable[..., Array], *arrays: Array, interpret: bool = False) -> Array:
    """Return function(*arrays), computed in float32, number by number, in the type and shape of the first."""
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    shape, kind = arrays[0].shape, arrays[0].dtype

    def kernel(*refs: Any) -> None:
        *reads, write = refs
        write[...] = function(*(ref[...].astype(np.float32) for ref in reads)).astype(kind)

    part = pl.BlockSpec((_RUN,), lambda number: (number,))
    flat = [x.reshape(-1) for x in arrays]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(flat[0].shape, kind),
        grid=(flat[0].size // _RUN,),
        in_specs=[part] * len(flat),
        out_specs=part,
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        name=function.__name__.strip("_"),
    )(*flat).reshape(shape)
