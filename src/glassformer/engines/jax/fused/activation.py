"""GELU in half precision on a GPU, by kernels that read and write whole runs of numbers at a time."""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import jax
import numpy as np

from .... import ops
from ....arrays import Array, is_half
from ....dispatch import replaces
from . import on_one_gpu

_RUN = 2048  # numbers that a program computes
_LEAST, _MOST = 1 << 20, 1 << 31  # numbers: beyond, a place has no number of 32 bits
_WARPS = 4


@replaces(ops.gelu_tanh, ops.gelu_tanh_backward)
def gelu_tanh(x: Array) -> tuple[Array, Array]:
    """Compute the op as it is written, in one kernel."""
    return (elementwise(_gelu_tanh, x), x) if can_fuse(x) else NotImplemented


@replaces(ops.gelu_tanh_backward, ops.gelu_tanh)
def gelu_tanh_backward(dy: Array, x: Array) -> Array:
    """Compute the gradient as it is written, in one kernel."""
    return elementwise(_gelu_tanh_backward, x, dy) if can_fuse(x) else NotImplemented


def can_fuse(x: Array) -> bool:
    """Tell whether the kernels take an array: large, of half precision, on one GPU."""
    fits = _LEAST <= x.size < _MOST and x.size % _RUN == 0
    return is_half(x) and fits and on_one_gpu()


def _gelu_tanh(x: Array) -> Array:
    return unwrap(ops.gelu_tanh)(x)[0]


def _gelu_tanh_backward(x: Array, dy: Array) -> Array:
    return unwrap(ops.gelu_tanh_backward)(dy, x)


def elementwise(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return function(*arrays), computed in float32, number by number, in the type and shape of the first."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    shape, dtype = arrays[0].shape, arrays[0].dtype

    def kernel(*refs: Any) -> None:
        *reads, write = refs
        write[...] = function(*(ref[...].astype(np.float32) for ref in reads)).astype(dtype)

    part = pl.BlockSpec((_RUN,), lambda number: (number,))
    flat = [x.reshape(-1) for x in arrays]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(flat[0].shape, dtype),
        grid=(flat[0].size // _RUN,),
        in_specs=[part] * len(flat),
        out_specs=part,
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        name=function.__name__.strip("_"),
    )(*flat).reshape(shape)
