"""Matrix products from inside a kernel, by the BLAS that NumPy brings along.

A kernel that makes many small products would spend its time on the way in and out of Python. The address of NumPy's own
`gemm` is passed to it as a number, which unlike a pointer can stand in a compiled kernel that is kept on disk. Where
NumPy was built with a BLAS of another name or with short integers, the address is 0 and kernels do without.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

_ROWS, _AS_IS, _TRANSPOSED = 101, 111, 112  # of cblas.h


@cache
def gemm_address(dtype: np.dtype) -> int:
    """Return the address of the product of matrices of this type, 0 if it is not known."""
    name = {"f": "scipy_cblas_sgemm64_", "d": "scipy_cblas_dgemm64_"}.get(dtype.char)
    for library in ThreadpoolController().lib_controllers:
        if name is not None and library.internal_api == "openblas":
            function = getattr(ctypes.CDLL(library.filepath), name, None)
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


@intrinsic
def gemm(typing, address, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Turn C (m, n) into A B + beta · C, with A (m, k) or its transpose (k, m), B (k, n) or its transpose (n, k).

    a, b and c are addresses, lda, ldb and ldc the distances from one row to the next; beta has the type of the numbers.
    """
    words = (types.int64,) * 3
    matrix = (types.intp, types.int64)
    sides = (types.boolean, types.boolean)
    signature = types.void(types.int64, *sides, *words, *matrix, *matrix, beta, *matrix)
    return signature, _call_gemm


def _call_gemm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    from llvmlite import ir

    address, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc = arguments
    number, int32 = beta.type, ir.IntType(32)

    def side(flag: Any) -> Any:
        flag = builder.trunc(flag, ir.IntType(1)) if flag.type.width > 1 else flag
        return builder.select(flag, int32(_TRANSPOSED), int32(_AS_IS))

    call = [int32(_ROWS), side(transpose_a), side(transpose_b), m, n, k, number(1.0), a, lda, b, ldb, beta, c, ldc]
    function = ir.FunctionType(ir.VoidType(), [value.type for value in call])
    builder.call(builder.inttoptr(address, function.as_pointer()), call)
    return context.get_dummy_value()
