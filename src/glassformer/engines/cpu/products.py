"""Matrix products by the address of a BLAS: that of NumPy, or Intel's where it is installed.

A kernel that makes many small products would spend its time on the way in and out of Python. The address of `gemm` is
passed to it as a number, which unlike a pointer can stand in a compiled kernel that is kept on disk. Where NumPy was
built with a BLAS of another name or with short integers, and Intel's is not there, the address is 0 and kernels do
without.

Intel's BLAS is PyPI's package `mkl`: its products are faster on Intel's processors than NumPy's. It multiplies on the
thread that calls it. So kernels take it inside shards and for small products; a large product that may use several
cores is shared out to them (`multiply_into`), and inside of a kernel left to NumPy's BLAS. The variable
GLASSFORMER_BLAS says `numpy` to do without it, and `mkl` to take it on other makers' processors, too, and to be told if
it is not there.

Products of tiles that stay in a core's cache are made in vector registers: no way in, no copies, no threads. A block of
the result, `ROWS` rows of `VECTORS` registers, is summed up while it takes one row of B after the other. Nothing checks
an address. Rows of B and of the result must hold whole registers; A may lie in any way.
"""

import ctypes
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

from ...core.arrays import Array
from ...core.errors import ConfigError
from ...core.reporting import log_once
from ...core.threads import cores
from .compile import compiled
from .cores import each

LARGE = 1e8  # FLOPs of a product that several threads are better for, where cores are idle
SMALL = 1e6  # FLOPs of a product that NumPy calls sooner

_TOGETHER = 16  # rows or columns that stay on one core

_ROWS, _AS_IS, _TRANSPOSED = 101, 111, 112  # of cblas.h


def gemm_address(dtype: np.dtype, flops: float = 0, *, alone: bool = False) -> int:
    """Return the address of the product for matrices of this type, 0 if none is known.

    flops    of the largest product that is wanted
    alone    whether there is one core to use
    """
    intel = _address_in_mkl(dtype) if flops < LARGE or alone else 0
    return intel or _address_in_numpy(dtype)


@cache
def _address_in_mkl(dtype: np.dtype) -> int:
    intel = mkl()
    name = {"f": "cblas_sgemm_64", "d": "cblas_dgemm_64"}.get(dtype.char)
    return 0 if intel is None or name is None else intel.address(name)


@cache
def _address_in_numpy(dtype: np.dtype) -> int:
    name = {"f": "scipy_cblas_sgemm64_", "d": "scipy_cblas_dgemm64_"}.get(dtype.char)
    controllers = ThreadpoolController().lib_controllers
    libraries = [ctypes.CDLL(blas.filepath) for blas in controllers if blas.internal_api == "openblas"]
    if name is None or not libraries:
        return 0
    library = next((library for library in libraries if hasattr(library, name)), None)
    return function_address(library, name, "NumPy's OpenBLAS")


def multiply_into(a: Array, b: Array, out: Array) -> None:
    """Write a b into out: matrices of one real type, whose rows may lie apart; a and b may be transposed."""
    (M, K), N = a.shape, b.shape[1]
    flops = 2.0 * M * N * K
    many = cores() if flops >= LARGE else 1  # to ask how many there are takes long
    address = gemm_address(a.dtype, flops, alone=many == 1) if flops >= SMALL else 0
    if not address or None in (_side(a), _side(b)) or (_side(out) or (0,))[0] != _AS_IS:
        np.matmul(a, b, out=out)
    elif many == 1 or not _address_in_mkl(a.dtype):
        _multiply(address, a, b, out)
    else:  # Intel's multiplies on the thread that calls it: each core takes some rows or columns
        edges = [max(M, N) * number // many // _TOGETHER * _TOGETHER for number in range(many)] + [max(M, N)]
        shares = [slice(*ends) for ends in pairwise(edges)]
        jobs = [(a[share], b, out[share]) if M >= N else (a, b[:, share], out[:, share]) for share in shares]
        each([partial(_multiply, _address_in_mkl(a.dtype), *job) for job in jobs])


def _multiply(address: int, a: Array, b: Array, out: Array) -> None:
    (M, K), N = a.shape, b.shape[1]
    (transposed_a, lda), (transposed_b, ldb), (_, ldc) = _side(a), _side(b), _side(out)
    call, real = _callable(address, a.dtype)
    start = [x.__array_interface__["data"][0] for x in (a, b, out)]
    call(_ROWS, transposed_a, transposed_b, M, N, K, real(1), start[0], lda, start[1], ldb, real(0), start[2], ldc)


def _side(x: Array) -> Any:
    """Return whether a matrix is transposed in memory, and how far its rows are apart; None if neither way fits."""
    if any(stride % x.itemsize for stride in x.strides):
        return None
    (rows, columns), (down, right) = x.shape, (stride // x.itemsize for stride in x.strides)
    if right == 1 and down >= columns:
        return _AS_IS, down
    return (_TRANSPOSED, right) if down == 1 and right >= rows else None


@cache
def _callable(address: int, dtype: np.dtype) -> tuple[Callable[..., None], Any]:
    real = ctypes.c_float if dtype.char == "f" else ctypes.c_double
    flag, number, matrix = ctypes.c_int, ctypes.c_int64, (ctypes.c_void_p, ctypes.c_int64)
    arguments = flag, flag, flag, number, number, number, real, *matrix, *matrix, real, *matrix
    return ctypes.CFUNCTYPE(None, *arguments)(address), real


@intrinsic
def gemm(typing, address, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Turn C (m, n), at the address c with rows ldc apart, into A B + beta · C; A and B, perhaps transposed, too."""
    words = (types.int64,) * 3
    matrix = (types.intp, types.int64)
    sides = (types.boolean, types.boolean)
    signature = types.void(types.int64, *sides, *words, *matrix, *matrix, beta, *matrix)
    return signature, _call_gemm


def _call_gemm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    address, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc = arguments
    number, int32 = beta.type, ir.IntType(32)

    def side(flag: Any) -> Any:
        flag = builder.trunc(flag, ir.IntType(1)) if flag.type.width > 1 else flag
        return builder.select(flag, int32(_TRANSPOSED), int32(_AS_IS))

    call = [int32(_ROWS), side(transpose_a), side(transpose_b), m, n, k, number(1.0), a, lda, b, ldb, beta, c, ldc]
    function = ir.FunctionType(ir.VoidType(), [value.type for value in call])
    builder.call(builder.inttoptr(address, function.as_pointer()), call)
    return context.get_dummy_value()


# --- Intel's BLAS ----------------------------------------------------------------------------------------------------

VARIABLE = "GLASSFORMER_BLAS"
_SEQUENTIAL, _SAME_BITS = 1, 2  # MKL_THREADING_SEQUENTIAL and MKL_CBWR_AUTO of mkl_service.h and mkl_types.h


class Mkl(NamedTuple):
    """A loaded library, and the version of its package."""

    version: str
    library: Any

    def address(self, name: str) -> int:
        """Return where a function lies, 0 if there is none of this name."""
        return function_address(self.library, name, f"mkl {self.version}")


def function_address(library: Any, name: str, title: str) -> int:
    """Return where a function of a library lies; 0, and say so, if there is none of this name."""
    function = getattr(library, name, None)
    if function is None:
        log_once(f"{title} has no {name}: kernels do without, and small products are slower")
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def mkl() -> Mkl | None:
    """Return the library; None where it is not installed or not wanted."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "mkl", "numpy"):
        raise ConfigError(f"{VARIABLE} is {wanted!r}", hint="set it to numpy or mkl, or not at all")
    if wanted == "numpy" or (not wanted and not _is_intel()):
        return None
    library = _load()
    if wanted and library is None:
        hint = f"pip install 'glassformer[mkl]' on Linux for x86-64, or unset {VARIABLE}"
        raise ConfigError(f"{VARIABLE} is mkl, which is not installed or cannot be loaded", hint=hint)
    return library


@cache
def _load() -> Mkl | None:
    try:
        package = importlib.metadata.distribution("mkl")
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        files = [file for file in package.files or () if file.name.startswith("libmkl_rt.so")]
        library = ctypes.CDLL(str(Path(str(files[0].locate())).resolve()))
        # It may be in use already by another library, with threads that shards would compete with.
        if library.MKL_Set_Threading_Layer(_SEQUENTIAL) != _SEQUENTIAL:
            raise OSError("another library has started its threads")
        library.MKL_CBWR_Set(_SAME_BITS)  # wherever in memory arrays begin: a resumed run has them elsewhere
    except (IndexError, OSError, AttributeError) as error:
        log_once(f"mkl {package.version} is installed, but cannot be used ({error}): NumPy's BLAS multiplies")
        return None
    return Mkl(package.version, library)


@cache
def _is_intel() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


# --- products of tiles -----------------------------------------------------------------------------------------------

_CONTRACT = ("reassoc", "contract")


def _registers() -> tuple[int, int]:
    """Return the bytes of a vector register, and how many registers of one block's row leave enough for all else."""
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES is not None:  # compiled for another processor than this one
        return 16, 2
    try:
        has = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell
        return 16, 2
    if has.get("avx512f"):
        return 64, 4
    return (32, 2) if has.get("avx2") else (16, 4 if has.get("neon") else 2)


ROWS = 6
BYTES, VECTORS = _registers()
DEPTH = 128  # rows of B at a time: those of one block stay in the first cache


@compiled
def multiply_tiles(m, row, k, a, down, right, b, b_down, beta, c, c_down):
    """Turn C, m rows of `row` bytes, into A B + beta · C for beta 0 or 1; rows are rounded up to whole registers.

    a, b, c       addresses; what lies below another number of the matrix is `down` bytes away, beside it in A `right`
    """
    end = (row + BYTES - 1) // BYTES * BYTES
    wide = end // (VECTORS * BYTES) * (VECTORS * BYTES)
    for low in range(0, k, DEPTH):
        depth, fresh = min(DEPTH, k - low), low == 0 and beta == 0
        a_low, b_low = a + low * right, b + low * b_down
        for left in range(0, wide, VECTORS * BYTES):
            for top in range(0, m, ROWS):
                corner = c + top * c_down + left
                _wide_block(
                    beta, fresh, m - top, depth, a_low + top * down, down, right, b_low + left, b_down, corner, c_down
                )
        for left in range(wide, end, BYTES):
            for top in range(0, m, ROWS):
                corner = c + top * c_down + left
                _narrow_block(
                    beta, fresh, m - top, depth, a_low + top * down, down, right, b_low + left, b_down, corner, c_down
                )


def _block(vectors: int) -> Any:
    """Make what adds A B to a block of so many registers in a row; beyond the last of `rows`, it is taken again."""

    @intrinsic
    def block(typing, beta, fresh, rows, depth, a, down, right, b, b_down, c, c_down):
        arguments = (beta, fresh, rows, depth, a, down, right, b, b_down, c, c_down)
        return types.none(*arguments), lambda context, builder, signature, values: _write(
            context, builder, vectors, *values
        )

    return block


def _write(context, builder, vectors, beta, fresh, rows, depth, a, down, right, b, b_down, c, c_down):
    number, word, lane = beta.type, ir.IntType(64), ir.IntType(32)
    count = BYTES // (4 if number == ir.FloatType() else 8)
    vector, offsets = ir.VectorType(number, count), range(0, BYTES * vectors, BYTES)

    def at(base, offset, kind):
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    last = builder.sub(rows, word(1))
    numbers = [builder.select(builder.icmp_signed("<", word(row), last), word(row), last) for row in range(ROWS)]
    a_rows, c_rows = ([builder.add(x, builder.mul(row, far)) for row in numbers] for x, far in ((a, down), (c, c_down)))
    # LLVM keeps these variables in registers.
    sums = [[cgutils.alloca_once(builder, vector) for _ in offsets] for _ in range(ROWS)]
    results = [
        (total, row, offset)
        for row, line in zip(c_rows, sums, strict=True)
        for total, offset in zip(line, offsets, strict=True)
    ]
    with builder.if_else(fresh) as (then, otherwise):
        with then:
            for total, _, _ in results:
                builder.store(ir.Constant(vector, [0] * count), total)
        with otherwise:
            for total, row, offset in results:
                builder.store(builder.load(at(row, word(offset), vector), align=8), total)
    with cgutils.for_range(builder, depth) as loop:
        below, beside = builder.add(b, builder.mul(loop.index, b_down)), builder.mul(loop.index, right)
        factors = [builder.load(at(below, word(offset), vector), align=8) for offset in offsets]
        for row, line in zip(a_rows, sums, strict=True):
            x = builder.load(at(row, beside, number))
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), x, lane(0))
            spread = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(lane, count), [0] * count))
            for total, factor in zip(line, factors, strict=True):
                product = builder.fmul(spread, factor, flags=_CONTRACT)
                builder.store(builder.fadd(builder.load(total), product, flags=_CONTRACT), total)
    for total, row, offset in results:
        builder.store(builder.load(total), at(row, word(offset), vector), align=8)
    return context.get_dummy_value()


_wide_block, _narrow_block = _block(VECTORS), _block(1)
