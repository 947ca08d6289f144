"""Fused layers as programs: rows of numbers, one for each step, which one loop goes through.

A step calls a kernel by its address. So no code is compiled for a layer, or for the way back through it: only kernels
are, each once, and the loop that calls them.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import np_cfarray

from ...arrays import Array
from .compile import address_of, compiled
from .norm import normalize, normalize_backward
from .position import turn
from .products import gemm
from .update import FIELDS, addresses

APPLY, NORMALIZE, NORMALIZE_BACKWARD, MULTIPLY, MULTIPLY_BACKWARD, TURN, ATTEND, ATTEND_BACKWARD = range(8)
SIZES, ARRAYS, WIDTH = 2, 8, 16
"""Where a row has its sizes and the numbers of its arrays; before them stand its kind and an address."""


class Step(NamedTuple):
    kind: int
    address: int  # of the kernel
    sizes: tuple[int, ...]
    arrays: str  # their names
    factor: float = 0.0


class Program(NamedTuple):
    rows: Array  # (steps, WIDTH)
    factors: Array
    zero: Any  # of the type of all numbers
    spans: tuple[Array, ...]  # which keys each query sees

    def run(self, *arrays: Array) -> None:
        """Take all steps, on arrays in the order in which they were named."""
        run_steps(self.rows, self.factors, addresses((*self.spans, *arrays)), self.zero)


def program(steps: Sequence[Step], names: str, dtype: np.dtype, spans: tuple[Array, ...]) -> Program:
    """Return a program of these steps, on arrays of these names, all of one type."""
    order = {name: number for number, name in enumerate(("first", "last", *names.split()))}
    rows = np.zeros((len(steps), WIDTH), np.int64)
    for row, step in zip(rows, steps, strict=True):
        arrays = [order[name] for name in step.arrays.split()]
        row[:SIZES] = step.kind, step.address
        row[SIZES : SIZES + len(step.sizes)] = step.sizes
        row[ARRAYS : ARRAYS + len(arrays)] = arrays
    return Program(rows, np.array([step.factor for step in steps]), dtype.type(0), spans)


@cache
def kernel_address(kind: int, dtype: np.dtype) -> int:
    """Return the address of the kernel of steps of a kind."""
    real = from_dtype(dtype)
    row, matrix, heads = (types.Array(real, axes, "C") for axes in (1, 2, 4))
    if kind == APPLY:
        return address_of(_add_to, row, row)
    if kind == NORMALIZE:
        return address_of(normalize, matrix, row, row, types.float64, matrix, row, row)
    if kind == NORMALIZE_BACKWARD:
        return address_of(normalize_backward, matrix, matrix, row, row, row, matrix, row, row)
    if kind == MULTIPLY:
        return address_of(_multiply, types.int64, matrix, matrix, row, matrix)
    if kind == MULTIPLY_BACKWARD:
        return address_of(_multiply_backward, types.int64, matrix, matrix, matrix, types.float64, matrix, matrix, row)
    return address_of(turn, heads, matrix, matrix, types.float64, types.boolean)


@intrinsic
def _call(typing, address, like, arguments):
    """Call a kernel that returns nothing by its address; (address as an object, shape) stands for an array.

    Its numbers are of the type of `like`, or of what is third. So Numba counts no references, which is much code.
    """
    given = [_argument(argument, like) for argument in arguments]

    def generate(context, builder, signature, values):
        convention, unpacked = context.call_conv, []
        for n, argument in enumerate(arguments):
            value = builder.extract_value(values[2], n)
            if isinstance(given[n], types.Array):
                number = context.get_data_type(given[n].dtype).as_pointer()
                place = builder.add(builder.extract_value(value, 0), ir.IntType(64)(FIELDS))
                numbers = builder.load(builder.inttoptr(place, number.as_pointer()))
                view = given[n](types.CPointer(given[n].dtype), argument[1])
                value = np_cfarray(context, builder, view, (numbers, builder.extract_value(value, 1)))
            unpacked.append(value)
        pointer = builder.inttoptr(values[0], convention.get_function_type(types.none, given).as_pointer())
        status, _ = convention.call_function(builder, pointer, types.none, given, unpacked)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(types.int64, like, arguments), generate


def _argument(argument: Any, like: Any) -> Any:
    if not isinstance(argument, types.BaseTuple):
        return argument
    return types.Array(types.unliteral(argument[2]) if len(argument) > 2 else like, len(argument[1]), "C")


@compiled
def run_steps(rows, factors, arrays, zero):
    """Take the steps of a program, on arrays whose addresses as objects are given."""
    for n in range(len(rows)):
        own, factor = rows[n], factors[n]
        kind, address, s0, s1, s2, s3, s4, s5 = own[0], own[1], own[2], own[3], own[4], own[5], own[6], own[7]
        a, b, c, d = arrays[own[8]], arrays[own[9]], arrays[own[10]], arrays[own[11]]
        e, f, g, h = arrays[own[12]], arrays[own[13]], arrays[own[14]], arrays[own[15]]
        if kind == APPLY:
            _call(address, zero, ((a, (s0,)), (b, (s0,))))
        elif kind == NORMALIZE:
            x, row, each = (s0, s1), (s1,), (s0,)
            _call(address, zero, ((a, x), (b, row), (c, row), factor, (d, x), (e, each), (f, each)))
        elif kind == NORMALIZE_BACKWARD:
            x, row, each = (s0, s1), (s1,), (s0,)
            _call(address, zero, ((a, x), (b, x), (c, each), (d, each), (e, row), (f, x), (g, row), (h, row)))
        elif kind == MULTIPLY:
            x, w, y = (s1, s2), (s2, s3), (s1, s3)
            _call(address, zero, (s0, (a, x), (b, w), (c, (s4,)), (d, y)))
        elif kind == MULTIPLY_BACKWARD:
            x, w, y = (s1, s2), (s2, s3), (s1, s3)
            _call(address, zero, (s0, (a, y), (b, x), (c, w), factor, (d, x), (e, w), (f, (s4,))))
        elif kind == TURN:
            angles = s1, s3 // 2
            _call(address, zero, ((a, (s0, s1, s2, s3)), (b, angles), (c, angles), factor, s4 != 0))
        else:
            heads, weights = (s1, s2, s3, s4), (s1, s3, s2, s2)
            given = s0, (arrays[0], (s2,), s2), (arrays[1], (s2,), s2), s5, factor, (a, heads), (b, heads), (c, heads)
            if kind == ATTEND:
                _call(address, zero, (*given, (d, weights), (e, heads)))
            else:
                _call(address, zero, (*given, (d, heads), (e, weights), (f, heads), (g, heads), (h, heads)))


@compiled
def _add_to(x, y):
    for i in range(x.size):
        x[i] += y[i]


@compiled
def _multiply(address, x, w, b, y):
    """Turn y into x w + b; without b if that is empty."""
    inputs, outputs = w.shape
    zero = w.dtype.type(0)
    gemm(
        address, False, False, x.shape[0], outputs, inputs, x.ctypes.data, inputs, w.ctypes.data, outputs, zero,
        y.ctypes.data, outputs,
    )  # fmt: skip
    if b.size:
        for n in range(y.shape[0]):
            row = y[n]
            for i in range(outputs):
                row[i] += b[i]


@compiled
def _multiply_backward(address, dy, x, w, beta, dx, dw, db):
    """Turn dx into dy wᵀ + beta · dx; fill in dw = xᵀ dy, and db = Σ dy unless it is empty."""
    inputs, outputs = w.shape
    N, real = dy.shape[0], w.dtype.type
    dout, matrix, into = dy.ctypes.data, w.ctypes.data, dw.ctypes.data
    gemm(address, False, True, N, inputs, outputs, dout, outputs, matrix, outputs, real(beta), dx.ctypes.data, inputs)
    gemm(address, True, False, inputs, outputs, N, x.ctypes.data, inputs, dout, outputs, real(0), into, outputs)
    if db.size:
        db[:] = 0
        for n in range(N):
            row = dy[n]
            for i in range(outputs):
                db[i] += row[i]
