"""The compilation of kernels, the arrays that they take, and the functions of numbers that they share.

Every kernel releases the GIL, so that several cores can run Python's threads, and is kept on disk (`KernelCache`).
Sums may be reordered, which lets them use vector registers; infinities and NaN keep their meaning, because masks are
−inf and a run that diverges must be seen.
"""

import hashlib
import math
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic, overload, register_jitable
from numpy import ndarray

from ...core.arrays import Array
from ...core.files import replacing
from ...core.reporting import log_once

REAL: frozenset[np.dtype] = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""The types that are compiled for, in the machine's own order of bytes."""

REORDER = frozenset({"reassoc", "contract", "arcp", "nsz"})
# No kernel is handed to C, which Numba would otherwise compile a way in for.
_SETTINGS: dict[str, Any] = {
    "nogil": True, "fastmath": set(REORDER), "error_model": "numpy", "no_cfunc_wrapper": True,
}  # fmt: skip


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function for the types of its arguments, when it is first called with them."""
    kernel = numba.njit(**_SETTINGS)(function)
    kernel._cache = KernelCache(function)
    return kernel


def address_of(kernel: Any, *arguments: Any) -> int:
    """Return where the code of a kernel for arguments of these types lies; it stays there as long as the kernel."""
    kernel.compile(arguments)
    code = kernel.overloads[arguments]
    return code.library.get_pointer_to_function(code.fndesc.llvm_func_name)


@intrinsic
def call(typing, address, arguments):
    """Call a kernel that returns nothing by its address, unchecked: the caller is compiled without it."""

    def generate(context, builder, signature, values):
        convention, argument_types = context.call_conv, list(signature.args[1])
        pointer = builder.inttoptr(values[0], convention.get_function_type(types.none, argument_types).as_pointer())
        unpacked = cgutils.unpack_tuple(builder, values[1])
        status, _ = convention.call_function(builder, pointer, types.none, argument_types, unpacked)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(types.int64, arguments), generate


inlined = register_jitable(inline="always", fastmath=set(REORDER))


def instruction(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function of values of these types, which writes instructions of LLVM, callable in kernels."""

    def make(write: Callable[..., Any]) -> Any:
        def generate(context, builder, signature, values):
            value = write(builder, *values)
            return context.get_dummy_value() if value is None else value

        # Wrapped, so that Numba sees how many arguments there are.
        return intrinsic(wraps(write)(lambda typing, *values: (result(*arguments), generate)))

    return make


@instruction(types.none)
def widest_registers(builder):
    """Use vector registers of 512 bits in the loops of a kernel; on some processors, LLVM takes half by itself."""
    # llvmlite knows no attributes with values, and refuses them.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')


@instruction(types.float32, types.int32)
def bits_to_float(builder, bits):
    """Read the 32 bits of an integer as a float32."""
    return builder.bitcast(bits, ir.FloatType())


def _llvm_function(name: str, arguments: int) -> Any:
    """Make LLVM's own function `name` of some floats callable in kernels."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = values[0].type
        width = "f32" if signature.return_type == types.float32 else "f64"
        called = ir.FunctionType(number, (number,) * arguments)
        return builder.call(builder.module.declare_intrinsic(f"llvm.{name}.{width}", (), called), values)

    if arguments == 1:
        return intrinsic(lambda typing, x: (x(x), generate))
    return intrinsic(lambda typing, x, y: (x(x, x), generate))


# The larger and the smaller of two numbers, NaN if one is NaN: unlike comparisons, loops of these vectorize.
maximum = _llvm_function("maximum", 2)
minimum = _llvm_function("minimum", 2)
_round = _llvm_function("rint", 1)


def exp(x: float) -> float:
    """Return eˣ; in float32 by a polynomial that vectorizes, good to 2e-7 · (1 + |x|), infinite from 88.4 on."""
    return math.exp(x)


@inlined
def _exp32(x):
    """eˣ = 2ⁿ · 2ʳ with n = round(x / log 2): 2ʳ by a polynomial fitted to [−½, ½], 2ⁿ by its bits, 0 for n = −127."""
    f = np.float32
    exponent = maximum(minimum(x * f(1.4426950408889634), f(128.0)), f(-127.0))  # keeps NaN
    n = _round(exponent)
    r = exponent - n
    r2 = r * r
    # In pairs rather than nested: short chains of dependent products keep both vector units busy.
    low = f(1.0) + f(0.6931469775976788) * r
    middle = f(0.24022242083111714) + f(0.055507337444707414) * r
    high = f(0.00967151278578459) + f(0.001326472725285338) * r
    p = low + r2 * (middle + r2 * high)
    return p * bits_to_float((np.int32(n) + np.int32(127)) << np.int32(23))


@overload(exp, inline="always")
def _exp(x):
    if x == types.float32:
        return lambda x: _exp32(x)
    return lambda x: math.exp(x)


# --- arrays ----------------------------------------------------------------------------------------------------------


def is_plain(x: Array, *others: Array) -> bool:
    """Return whether all are NumPy's own arrays in C order and share one real type."""
    if type(x) is not np.ndarray or x.dtype not in REAL or not x.flags.c_contiguous:
        return False
    # A loop, not all(...): this is asked forty times in a step of a small model.
    for other in others:
        if type(other) is not ndarray or other.dtype != x.dtype or not other.flags.c_contiguous:
            return False
    return True


def is_array(x: Any, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Return whether x is NumPy's own array of this type and shape, in C order."""
    return type(x) is np.ndarray and x.shape == shape and x.dtype == dtype and x.flags.c_contiguous


def are_arrays(arrays: Iterable[Any], dtype: np.dtype, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether all are NumPy's own arrays of this type, each of its shape, in C order."""
    for x, shape in zip(arrays, shapes, strict=True):  # no call for each: a step asks this of fifty
        if type(x) is not ndarray or x.shape != shape or x.dtype != dtype or not x.flags.c_contiguous:
            return False
    return True


def rows(x: Array) -> Array:
    """View x (..., D) in C order as (N, D)."""
    if x.ndim == 2:
        return x
    return x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.reshape(math.prod(x.shape[:-1]), 0)


# --- compiled code on disk -------------------------------------------------------------------------------------------

HERE = Path(__file__).parent
ELSEWHERE = (HERE.parents[1] / "core" / "quantized.py",)  # whose constants stand in kernels
ENDING = ".kernel"
_CHECKSUM = 32  # bytes


@cache
def source_hash() -> str:
    """Return a hash of all that kernels are compiled from, and of the compiler."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in (*sorted(HERE.rglob("*.py")), *ELSEWHERE):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folders(home: Path) -> Iterator[Path]:
    """Go through the folders where the code of the sources in a folder may be, the best one first."""
    name = f"kernels-{source_hash()}"
    if numba.config.CACHE_DIR:  # NUMBA_CACHE_DIR
        yield Path(numba.config.CACHE_DIR) / name / home.relative_to(HERE)
        return
    yield home / "__pycache__" / name
    from ...weights.catalog import cache_folder  # not needed at most starts

    with suppress(RuntimeError):  # a user without a home
        yield cache_folder() / name / home.relative_to(HERE)


def has_compiled_kernels() -> bool:
    """Return whether something has been compiled here before."""
    return any(any(folder.glob(f"*{ENDING}")) for folder in cache_folders(HERE))


class KernelCache(_Cache):
    """The compiled code of one function, for Numba's dispatcher: a file for each processor and combination of types.

    Numba's own cache asks whether the file of the function is as it was, but kernels call functions of other files. So
    the folder is named by a hash of all sources. Files are written atomically and begin with a checksum: one that is
    truncated, damaged or renamed is compiled anew. Without a writable folder, every start compiles.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        code, file = function.__code__, Path(function.__code__.co_filename)
        self._name = f"{file.stem}.{function.__qualname__}-{code.co_firstlineno}.{sys.implementation.cache_tag}"
        self._home = file.parent

    @property
    def cache_path(self) -> str:
        return str(next(cache_folders(self._home)))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for such arguments; None where it is not there, or not as it was written."""
        rtsys.initialize(target_context)  # all that loading needs: `refresh`, for compiling, takes as long as the rest
        key = self._key(sig, target_context.codegen())
        for folder in cache_folders(self._home):
            try:
                content = (folder / self._file(key)).read_bytes()
            except OSError:
                continue
            checksum, stored = content[:_CHECKSUM], content[_CHECKSUM:]
            if checksum == hashlib.sha256(key + stored).digest():
                return CompileResult._rebuild(target_context, *pickle.loads(stored))
            log_once("some compiled kernels were damaged: they are compiled again")
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep code for such arguments in the first folder that can be written."""
        if data.library.has_dynamic_globals:  # addresses of this process
            return
        key, stored, reason = self._key(sig, data.codegen), dumps(data._reduce()), None
        for folder in cache_folders(self._home):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(folder / self._file(key)) as partial:
                    partial.write_bytes(hashlib.sha256(key + stored).digest() + stored)
                return
            except OSError as error:
                reason = reason or error.strerror
        folders = " or ".join(map(str, cache_folders(self._home)))
        log_once(f"compiled kernels cannot be kept in {folders} ({reason}): every start compiles them again")

    def enable(self) -> None:
        """Do nothing, nor in the next two: code is always kept, and what is compiled again takes its place."""

    disable = flush = enable

    def _key(self, sig: Any, codegen: Any) -> bytes:
        """Return what tells this code from all other: the function, the types, and the processor."""
        return repr((self._name, str(normalize_signature(sig)), codegen.magic_tuple())).encode()

    def _file(self, key: bytes) -> str:
        return f"{self._name}.{hashlib.sha256(key).hexdigest()[:16]}{ENDING}"
