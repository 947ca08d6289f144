"""Vector registers by hand, for products that compilers do not find by themselves, and memory by its address.

    Bytes       16 numbers of 8 bits
    Integers     4 numbers of 32 bits
    Floats       4 numbers of float32
    Sixteen     16 numbers of float32, in as many registers as they take

Numba has no such types. Here they are LLVM's own, which it turns into whatever the processor has. Nothing checks an
address: it must be of an array that the caller keeps alive.
"""

import platform
from functools import cache
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, models, register_model

from .compile import instruction

_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_BYTES, _INTS, _FLOATS = ir.VectorType(ir.IntType(8), 16), ir.VectorType(_INT, 4), ir.VectorType(_FLOAT, 4)
_SIXTEEN = ir.VectorType(_FLOAT, 16)
_REORDER = ("reassoc", "contract")


class Register(types.Type):
    def __init__(self, name: str, vector: Any) -> None:
        super().__init__(name=name)
        self.vector = vector


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager: Any, register: Register) -> None:
        super().__init__(manager, register, register.vector)


BYTES, INTEGERS, FLOATS = Register("Bytes", _BYTES), Register("Integers", _INTS), Register("Floats", _FLOATS)
SIXTEEN = Register("Sixteen", _SIXTEEN)


def _spread(builder, x):
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, x, _INT(0)), undefined, ir.Constant(_INTS, [0] * 4))


def _total(builder, x):
    lanes = [builder.extract_element(x, _INT(lane)) for lane in range(4)]
    return builder.fadd(builder.fadd(lanes[0], lanes[1]), builder.fadd(lanes[2], lanes[3]))


def _each(byte):
    return ir.Constant(_BYTES, [byte - 256 if byte > 127 else byte] * 16)


spread = instruction(FLOATS, types.float32)(_spread)
total_of_one = instruction(types.float32, FLOATS)(_total)


def _zeros(register: Register) -> Any:
    return instruction(register)(lambda builder: ir.Constant(register.vector, [0] * register.vector.count))


no_integers, no_floats, no_sixteen = _zeros(INTEGERS), _zeros(FLOATS), _zeros(SIXTEEN)


def _load(register: Register, align: int) -> Any:
    def load(builder, address):
        return builder.load(builder.inttoptr(address, register.vector.as_pointer()), align=align)

    return instruction(register, types.intp)(load)


bytes_at, floats_at, sixteen_at = _load(BYTES, 1), _load(FLOATS, 4), _load(SIXTEEN, 4)


def _pointer(number: Any, llvm: Any) -> Any:
    """Turn an address into a pointer, of which `numba.carray` makes an array."""
    return instruction(types.CPointer(number), types.intp)(
        lambda builder, address: builder.inttoptr(address, llvm.as_pointer())
    )


floats_pointer, shorts_pointer = _pointer(types.float32, _FLOAT), _pointer(types.int16, ir.IntType(16))
integers_pointer = _pointer(types.int64, ir.IntType(64))


@instruction(FLOATS, types.intp)
def halves_at(builder, address):
    """Load four float16 numbers as float32."""
    halves = builder.inttoptr(address, ir.VectorType(ir.HalfType(), 4).as_pointer())
    return builder.fpext(builder.load(halves, align=1), _FLOATS)


@instruction(types.none, types.intp, FLOATS)
def store(builder, address, x):
    builder.store(x, builder.inttoptr(address, _FLOATS.as_pointer()), align=4)


@instruction(types.none, types.intp)
def prefetch(builder, address):
    """Ask for memory that will be read soon; any address is allowed."""
    pointer = ir.IntType(8).as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
    ask = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=signature)
    builder.call(ask, [builder.inttoptr(address, pointer), _INT(0), _INT(3), _INT(1)])


@instruction(types.int32, types.float32)
def bits_of_float(builder, x):
    """Return the 32 bits of a float32 as an integer."""
    return builder.bitcast(x, _INT)


@instruction(INTEGERS, INTEGERS, BYTES, BYTES, BYTES, BYTES, BYTES)
def dot(builder, sums, a, b, c, d, x):
    """Add products of signed bytes to four sums: to the r-th Σ aᵣ x₀…₃ + Σ bᵣ x₄…₇ + Σ cᵣ x₈…₁₁ + Σ dᵣ x₁₂…₁₅.

    Each of a, b, c and d holds four bytes of each of four rows.
    """
    words = builder.bitcast(x, _INTS)
    shift = ir.Constant(_INTS, [0] * 4)
    for place, four in enumerate((a, b, c, d)):
        word = builder.shuffle_vector(words, words, ir.Constant(_INTS, [place] * 4))
        if _has_mixed_products():
            # Σ a x = Σ (a + 128) x − 128 Σ x. Flipping the highest bit adds 128, where a byte is read without sign.
            sums = _add_mixed(builder, sums, builder.xor(four, _each(0x80)), word)
            shift = _add_mixed(builder, shift, _each(0x80), word)
        else:
            sums = _add_products(builder, sums, four, builder.bitcast(word, _BYTES))
    return builder.sub(sums, shift) if _has_mixed_products() else sums


@instruction(INTEGERS, INTEGERS, INTEGERS)
def joined(builder, high, low):
    return builder.add(builder.shl(high, ir.Constant(_INTS, [8] * 4)), low)


@instruction(FLOATS, INTEGERS)
def as_floats(builder, x):
    return builder.sitofp(x, _FLOATS)


@instruction(FLOATS, FLOATS, types.float32)
def times(builder, x, factor):
    return builder.fmul(x, _spread(builder, factor), flags=_REORDER)


def _plus_product(builder, sums, a, b):
    return builder.fadd(sums, builder.fmul(a, b, flags=_REORDER), flags=_REORDER)


plus_product = instruction(FLOATS, FLOATS, FLOATS, FLOATS)(_plus_product)
plus_products = instruction(SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN)(_plus_product)


@instruction(types.float32, FLOATS, FLOATS, FLOATS, FLOATS)
def total(builder, a, b, c, d):
    return _total(builder, builder.fadd(builder.fadd(a, b), builder.fadd(c, d)))


@instruction(types.float32, SIXTEEN)
def total_of_sixteen(builder, x):
    """Return the sum of all 16 numbers, added up as `total` does."""
    fours = [ir.Constant(_INTS, [*range(first, first + 4)]) for first in (0, 4, 8, 12)]
    a, b, c, d = (builder.shuffle_vector(x, x, four) for four in fours)
    return _total(builder, builder.fadd(builder.fadd(a, b), builder.fadd(c, d)))


@instruction(BYTES, BYTES)
def lower_nibbles(builder, pairs):
    """Return 16 (q − 8) for the q in the lower half of each byte."""
    # Flipping the highest bit of q and reading the result as a signed number subtracts 8.
    return builder.shl(builder.xor(pairs, _each(0x88)), _each(4))


@instruction(BYTES, BYTES)
def upper_nibbles(builder, pairs):
    """Return 16 (q − 8) for the q in the upper half of each byte."""
    return builder.and_(builder.xor(pairs, _each(0x88)), _each(0xF0))


@instruction(types.float32, types.int16)
def half_bits(builder, bits):
    """Return 2⁻¹¹² times the finite float16 number of these 16 bits.

    Its sign, exponent and fraction are moved to their places in a float32, where exponents count from −127, not −15.
    """
    moved = builder.shl(builder.sext(bits, _INT), _INT(13))
    return builder.bitcast(builder.and_(moved, _INT(0x8FFFFFFF - (1 << 32))), _FLOAT)


@instruction(types.int32, types.float32)
def magnitude(builder, x):
    """Return the bits of |x|, a whole number that is the larger the larger |x| is."""
    return builder.and_(builder.bitcast(x, _INT), _INT(0x7FFFFFFF))


def _of_constant(result: Register, register: Register, write: Any) -> Any:
    """Let kernels call a function of a register and a constant number."""

    @intrinsic
    def function(typing, x, number):
        if not isinstance(number, types.IntegerLiteral):
            return None

        def generate(context, builder, signature, values):
            return write(builder, values[0], number.literal_value)

        return result(register, number), generate

    return function


def _row_floats(builder, four, row):
    """Convert the four signed bytes of one of four rows to float32."""
    own = builder.shuffle_vector(four, four, ir.Constant(_INTS, [4 * row + place for place in range(4)]))
    return builder.sitofp(builder.sext(own, _INTS), _FLOATS)


def _spread_lane(builder, x, lane):
    """Put one of four numbers into all four lanes."""
    return builder.shuffle_vector(x, x, ir.Constant(_INTS, [lane] * 4))


row_floats, spread_lane = _of_constant(FLOATS, BYTES, _row_floats), _of_constant(FLOATS, FLOATS, _spread_lane)


def _add_products(builder, sums, a, b):
    """Add to each of four sums the products of four neighbors of 16 signed bytes."""
    if _has_dot_products():
        signature = ir.FunctionType(_INTS, [_INTS, _BYTES, _BYTES])
        add = builder.module.declare_intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", fnty=signature)
        return builder.call(add, [sums, a, b])
    products = builder.mul(*(builder.sext(x, ir.VectorType(_INT, 16)) for x in (a, b)))
    for count in (8, 4):
        even, odd = ([ir.Constant(_INT, 2 * i + first) for i in range(count)] for first in (0, 1))
        picks = ir.VectorType(_INT, count)
        products = builder.add(
            builder.shuffle_vector(products, products, ir.Constant(picks, even)),
            builder.shuffle_vector(products, products, ir.Constant(picks, odd)),
        )
    return builder.add(sums, products)


def _add_mixed(builder, sums, a, words):
    """Add to each of four sums the products of four neighbors: bytes without sign, and signed ones in words."""
    signature = ir.FunctionType(_INTS, [_INTS, _INTS, _INTS])
    add = builder.module.declare_intrinsic(_MIXED, fnty=signature)
    return builder.call(add, [sums, builder.bitcast(a, _INTS), words])


_MIXED = "llvm.x86.avx512.vpdpbusd.128"


@cache
def _has_mixed_products() -> bool:
    """Tell whether this processor adds up products of unsigned and signed bytes in one instruction."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES is not None:  # compiled for another processor than this one
        return False
    has = binding.get_host_cpu_features()
    return bool(has.get("avxvnni") or (has.get("avx512vnni") and has.get("avx512vl")))


@cache
def _has_dot_products() -> bool:
    """Tell whether this processor adds up products of bytes in one instruction: ask LLVM to compile a sum of some.

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
