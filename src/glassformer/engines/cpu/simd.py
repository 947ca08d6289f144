"""Vector registers by hand, for products that compilers do not find by themselves, and memory by its address.

    Bytes       64 numbers of 8 bits: runs of four of each of four rows
    Sixteen     16 numbers of float32
    Floats       4 numbers of float32
    Digits      16 numbers of 8 bits, by which one instruction multiplies four runs of bytes, if the processor can
    Sums        a number of 32 bits for each row and run that the processor multiplies at once
    Lanes       the same of float32

Numba has no such types. Here they are LLVM's own, which it turns into as many registers as they take. Nothing checks an
address: it must be of an array that the caller keeps alive.
"""

import platform
from functools import cache, reduce
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, models, register_model

from .compile import instruction

_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_FLOATS, _SIXTEEN = ir.VectorType(_FLOAT, 4), ir.VectorType(_FLOAT, 16)
_REORDER = ("reassoc", "contract")
_IN_ORDER = ("arcp",)  # says nothing of a sum, but Numba would let one without any flag be reordered


@cache
def _mixed_products() -> int:
    """Return how many bits an instruction has that adds up products of unsigned and signed bytes; 0: there is none."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return 0
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES is not None:  # compiled for another processor than this one
        return 0
    has = binding.get_host_cpu_features()
    return 512 if has.get("avx512vnni") else 256 if has.get("avxvnni") else 0


UNSIGNED = 128 if _mixed_products() else 0
"""Added to each of the bytes that digits are multiplied by; `starts_at` makes up for that."""
RUNS = 4 if UNSIGNED else 1
_EACH_ROW = [row for row in range(4) for _ in range(RUNS)]
"""The rows of the lanes: where all runs are multiplied at once, those of one row lie side by side."""


class Register(types.Type):
    def __init__(self, name: str, vector: Any) -> None:
        super().__init__(name=name)
        self.vector = vector


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager: Any, register: Register) -> None:
        super().__init__(manager, register, register.vector)


BYTES, DIGITS = (Register(name, ir.VectorType(ir.IntType(8), n)) for name, n in (("Bytes", 64), ("Digits", 16)))
FLOATS, SIXTEEN = Register("Floats", _FLOATS), Register("Sixteen", _SIXTEEN)
SUMS, LANES = (Register(name, ir.VectorType(n, 4 * RUNS)) for name, n in (("Sums", _INT), ("Lanes", _FLOAT)))


def _pick(builder, x, *lanes):
    """Return some numbers of a register."""
    return builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(_INT, len(lanes)), lanes))


def _spread(register):
    def spread(builder, x):
        first = builder.insert_element(ir.Constant(register.vector, ir.Undefined), x, _INT(0))
        return _pick(builder, first, *[0] * register.vector.count)

    return instruction(register, types.float32)(spread)


def _total(builder, x):
    a, b, c, d = (builder.extract_element(x, _INT(lane)) for lane in range(4))
    return _sum(builder, _sum(builder, a, b), _sum(builder, c, d))


def _sum(builder, a, b):
    return builder.fadd(a, b, flags=_IN_ORDER)


def _each(byte):
    return ir.Constant(BYTES.vector, [byte - 256 if byte > 127 else byte] * 64)


spread, spread_sixteen, spread_lanes = _spread(FLOATS), _spread(SIXTEEN), _spread(LANES)
total_of_one = instruction(types.float32, FLOATS)(_total)


def _zeros(register: Register) -> Any:
    return instruction(register)(lambda builder: ir.Constant(register.vector, [0] * register.vector.count))


no_floats, no_sixteen, no_lanes, no_sums = map(_zeros, (FLOATS, SIXTEEN, LANES, SUMS))


def _load(register: Register, align: int) -> Any:
    def load(builder, address):
        return builder.load(builder.inttoptr(address, register.vector.as_pointer()), align=align)

    return instruction(register, types.intp)(load)


bytes_at, digits_at, floats_at, sixteen_at = _load(BYTES, 1), _load(DIGITS, 1), _load(FLOATS, 4), _load(SIXTEEN, 4)


def _store(register: Register) -> Any:
    def store(builder, address, x):
        builder.store(x, builder.inttoptr(address, register.vector.as_pointer()), align=4)

    return instruction(types.none, types.intp, register)(store)


store, store_sixteen = _store(FLOATS), _store(SIXTEEN)


def _pointer(number: Any, llvm: Any) -> Any:
    """Turn an address into a pointer, of which `numba.carray` makes an array."""
    return instruction(types.CPointer(number), types.intp)(
        lambda builder, address: builder.inttoptr(address, llvm.as_pointer())
    )


floats_pointer, shorts_pointer = _pointer(types.float32, _FLOAT), _pointer(types.int16, ir.IntType(16))
integers_pointer, bytes_pointer = _pointer(types.int64, ir.IntType(64)), _pointer(types.uint8, ir.IntType(8))


@instruction(FLOATS, types.intp)
def halves_at(builder, address):
    """Load four float16 numbers as float32."""
    halves = builder.inttoptr(address, ir.VectorType(ir.HalfType(), 4).as_pointer())
    return builder.fpext(builder.load(halves, align=1), _FLOATS)


@instruction(LANES, FLOATS)
def each_lane(builder, x):
    """Put the number of each row into all of its lanes."""
    return _pick(builder, x, *_EACH_ROW)


@instruction(types.none, types.intp)
def prefetch(builder, address):
    """Ask for memory that will be read soon; any address is allowed."""
    pointer = ir.IntType(8).as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
    ask = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=signature)
    builder.call(ask, [builder.inttoptr(address, pointer), _INT(0), _INT(3), _INT(1)])


@instruction(types.int64, types.float32)
def bits_of_float(builder, x):
    """Return the 32 bits of a float32 as an integer."""
    return builder.sext(builder.bitcast(x, _INT), ir.IntType(64))


@instruction(BYTES, BYTES)
def in_lanes(builder, w):
    """Put runs of four bytes (4, four rows, 4) into the order of the lanes."""
    if not UNSIGNED:
        return w
    words = builder.bitcast(w, ir.VectorType(_INT, 16))
    return builder.bitcast(_pick(builder, words, *[4 * run + row for row in range(4) for run in range(4)]), w.type)


@instruction(BYTES, BYTES)
def without_sign(builder, w):
    """Add UNSIGNED to each byte."""
    return builder.xor(w, _each(UNSIGNED))


@instruction(BYTES)
def added(builder):
    """Return what `without_sign` adds."""
    return _each(UNSIGNED)


@instruction(types.none, types.intp, SUMS, SUMS)
def store_starts(builder, address, high, low):
    """Write −(65536 high + low) as a and b of  65536 a + b,  four of each: one for each run."""
    if not UNSIGNED:
        return
    low = builder.neg(low)
    high = builder.sub(builder.ashr(low, ir.Constant(low.type, [16] * 16)), high)
    low = builder.and_(low, ir.Constant(low.type, [65535] * 16))
    both = builder.shuffle_vector(high, low, ir.Constant(ir.VectorType(_INT, 8), [0, 1, 2, 3, 16, 17, 18, 19]))
    builder.store(both, builder.inttoptr(address, both.type.as_pointer()), align=4)


@instruction(SUMS, types.intp)
def starts_at(builder, address):
    """Return four of these numbers for each row; zeros where there is no UNSIGNED."""
    if not UNSIGNED:
        return ir.Constant(SUMS.vector, [0] * 4)
    starts = builder.inttoptr(address, ir.VectorType(_INT, 4).as_pointer())
    return _pick(builder, builder.load(starts, align=4), *[0, 1, 2, 3] * 4)


@instruction(SUMS, SUMS, BYTES, DIGITS)
def dot(builder, sums, w, x):
    """Add products of bytes w, `in_lanes` and without sign where there is UNSIGNED, and digits x to the sums."""
    words = builder.bitcast(x, ir.VectorType(_INT, 4))
    if UNSIGNED:
        return _add_mixed(builder, sums, w, builder.bitcast(_pick(builder, words, *[0, 1, 2, 3] * 4), w.type))
    for run in range(4):
        part = _pick(builder, w, *range(16 * run, 16 * run + 16))
        sums = _add_products(builder, sums, builder.bitcast(_pick(builder, words, *[run] * 4), part.type), part)
    return sums


@instruction(SUMS, SUMS)
def shifted(builder, sums):
    """Return 256 times the sums."""
    return builder.shl(sums, ir.Constant(SUMS.vector, [8] * SUMS.vector.count))


@instruction(LANES, SUMS)
def as_floats(builder, x):
    return builder.sitofp(x, LANES.vector)


@instruction(FLOATS, LANES)
def each_row(builder, x):
    """Add up what the runs of each row gave."""
    return reduce(builder.fadd, [_pick(builder, x, *range(run, 4 * RUNS, RUNS)) for run in range(RUNS)])


@intrinsic
def times(typing, x, y):
    return x(x, y), lambda context, builder, signature, values: builder.fmul(*values, flags=_REORDER)


@intrinsic
def plus(typing, x, y):
    return x(x, y), lambda context, builder, signature, values: builder.fadd(*values, flags=_REORDER)


@intrinsic
def plus_product(typing, sums, a, b):
    """Return sums + a b, for registers of one kind."""

    def generate(context, builder, signature, values):
        return builder.fadd(values[0], builder.fmul(*values[1:], flags=_REORDER), flags=_REORDER)

    return sums(sums, a, b), generate


@instruction(types.float32, SIXTEEN)
def total(builder, x):
    """Return the sum of all 16 numbers."""
    return _total(builder, _quarter(builder, x))


@instruction(FLOATS, *4 * [SIXTEEN])
def totals(builder, a, b, c, d):
    """Return the sums of 16 numbers each, as `total` adds them."""
    a, b, c, d = (_quarter(builder, x) for x in (a, b, c, d))
    return _neighbors(builder, _neighbors(builder, a, b), _neighbors(builder, c, d))


def _quarter(builder, x):
    a, b, c, d = (_pick(builder, x, *range(first, first + 4)) for first in (0, 4, 8, 12))
    return _sum(builder, _sum(builder, a, b), _sum(builder, c, d))


def _neighbors(builder, a, b):
    """Return a₀ + a₁, a₂ + a₃, b₀ + b₁, b₂ + b₃."""
    even, odd = (ir.Constant(ir.VectorType(_INT, 4), [*range(first, 8, 2)]) for first in (0, 1))
    return _sum(builder, builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))


@instruction(BYTES, BYTES)
def lower_nibbles(builder, pairs):
    return builder.and_(pairs, _each(15))


@instruction(BYTES, BYTES)
def upper_nibbles(builder, pairs):
    return builder.lshr(pairs, _each(4))


@instruction(types.float32, types.int16)
def half_bits(builder, bits):
    """Return 2⁻¹¹² times the finite float16 number of these 16 bits.

    Its sign, exponent and fraction are moved to where a float32 has them, where exponents count from −127, not −15.
    """
    moved = builder.shl(builder.sext(bits, _INT), _INT(13))
    return builder.bitcast(builder.and_(moved, _INT(0x8FFFFFFF - (1 << 32))), _FLOAT)


@instruction(types.int32, types.float32)
def magnitude(builder, x):
    """Return the bits of |x|, a whole number that is the larger the larger |x| is."""
    return builder.and_(builder.bitcast(x, _INT), _INT(0x7FFFFFFF))


def _of_constant(result: Register, register: Register, write: Any) -> Any:
    """Make a function of a register and a constant number callable in kernels."""

    @intrinsic
    def function(typing, x, number):
        if not isinstance(number, types.IntegerLiteral):
            return None

        def generate(context, builder, signature, values):
            return write(builder, values[0], number.literal_value)

        return result(register, number), generate

    return function


def _row_floats(builder, four, row):
    """Convert the 16 signed bytes of one of four rows to float32."""
    words = builder.bitcast(four, ir.VectorType(_INT, 16))  # as such, four bytes are moved by one instruction
    numbers = builder.bitcast(_pick(builder, words, *range(row, 16, 4)), DIGITS.vector)
    return builder.sitofp(builder.sext(numbers, ir.VectorType(_INT, 16)), _SIXTEEN)


row_floats = _of_constant(SIXTEEN, BYTES, _row_floats)
# Put the number of one of four rows into 16 lanes.
spread_row = _of_constant(SIXTEEN, FLOATS, lambda builder, x, row: _pick(builder, x, *[row] * 16))


def _add_products(builder, sums, a, b):
    """Add to each of four sums the products of four neighbors of 16 signed bytes."""
    if _has_dot_products():
        signature = ir.FunctionType(sums.type, [sums.type, a.type, b.type])
        add = builder.module.declare_intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", fnty=signature)
        return builder.call(add, [sums, b, a])
    products = builder.mul(*(builder.sext(x, ir.VectorType(_INT, 16)) for x in (a, b)))
    for count in (8, 4):
        even, odd = (_pick(builder, products, *range(first, 2 * count, 2)) for first in (0, 1))
        products = builder.add(even, odd)
    return builder.add(sums, products)


def _add_mixed(builder, sums, w, x):
    """Add to each of 16 sums the products of four neighbors: bytes w without sign, and signed ones x."""
    bits = _mixed_products()
    part = ir.VectorType(_INT, bits // 32)
    add = builder.module.declare_intrinsic(f"llvm.x86.avx512.vpdpbusd.{bits}", fnty=ir.FunctionType(part, [part] * 3))
    operands = sums, builder.bitcast(w, sums.type), builder.bitcast(x, sums.type)
    if bits == 512:
        return builder.call(add, operands)
    low, high = (builder.call(add, [_pick(builder, y, *range(i, i + 8)) for y in operands]) for i in (0, 8))
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(_INT, 16), [*range(16)]))


@cache
def _has_dot_products() -> bool:
    """Return whether this processor adds up products of bytes in one instruction: ask LLVM to compile a sum of some.

    To name the instruction without asking would end the process where there is none.
    """
    if platform.machine().lower() not in ("aarch64", "arm64"):
        return False
    module = binding.parse_assembly(
        """
        declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
        define i32 @dot(<16 x i8> %a, <16 x i8> %b) {
          %c = sext <16 x i8> %a to <16 x i32>
          %d = sext <16 x i8> %b to <16 x i32>
          %e = mul <16 x i32> %c, %d
          %f = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %e)
          ret i32 %f
        }"""
    )
    name = numba.config.CPU_NAME or binding.get_host_cpu_name()
    machine = binding.Target.from_default_triple().create_target_machine(cpu=name)
    return "sdot" in machine.emit_assembly(module)
