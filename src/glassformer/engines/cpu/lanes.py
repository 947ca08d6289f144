"""Vector registers by hand, for products that compilers do not find by themselves, and memory by its address.

    Bytes       16 numbers of 8 bits
    Integers     4 numbers of 32 bits
    Floats       4 numbers of float32

Numba has no such types. Here they are LLVM's own, which it turns into whatever the processor has. Nothing checks an
address: it must be of an array that the caller keeps alive.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, models, register_model

_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_BYTES, _INTS, _FLOATS = ir.VectorType(ir.IntType(8), 16), ir.VectorType(_INT, 4), ir.VectorType(_FLOAT, 4)
_REORDER = ("reassoc", "contract")


class Register(types.Type):
    """A vector register of numbers of one type."""

    def __init__(self, name: str, vector: Any) -> None:
        super().__init__(name=name)
        self.vector = vector


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):
    def __init__(self, manager: Any, register: Register) -> None:
        super().__init__(manager, register, register.vector)


BYTES, INTEGERS, FLOATS = Register("Bytes", _BYTES), Register("Integers", _INTS), Register("Floats", _FLOATS)


@intrinsic
def bytes_at(typing: Any, address: Any) -> Any:
    """Load 16 bytes."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(builder.inttoptr(values[0], _BYTES.as_pointer()), align=1)

    return BYTES(types.intp), generate


@intrinsic
def floats_at(typing: Any, address: Any) -> Any:
    """Load four float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(builder.inttoptr(values[0], _FLOATS.as_pointer()), align=4)

    return FLOATS(types.intp), generate


@intrinsic
def halves_at(typing: Any, address: Any) -> Any:
    """Load four float16 numbers as float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        halves = builder.inttoptr(values[0], ir.VectorType(ir.HalfType(), 4).as_pointer())
        return builder.fpext(builder.load(halves, align=1), _FLOATS)

    return FLOATS(types.intp), generate


@intrinsic
def prefetch(typing: Any, address: Any) -> Any:
    """Ask for memory that will be read soon; any address is allowed."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
        ask = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=signature)
        builder.call(ask, [builder.inttoptr(values[0], pointer), _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.none(types.intp), generate


@intrinsic
def dot(typing: Any, sums: Any, a: Any, b: Any, c: Any, d: Any, x: Any) -> Any:
    """Add products of signed bytes to four sums: to the r-th Σ aᵣ x₀…₃ + Σ bᵣ x₄…₇ + Σ cᵣ x₈…₁₁ + Σ dᵣ x₁₂…₁₅.

    Each of a, b, c and d holds four bytes of each of four rows.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, *rows, x = values
        words = builder.bitcast(x, _INTS)
        for place, four in enumerate(rows):
            word = builder.shuffle_vector(words, words, ir.Constant(_INTS, [place] * 4))
            sums = _add_products(builder, sums, four, builder.bitcast(word, _BYTES))
        return sums

    return INTEGERS(INTEGERS, BYTES, BYTES, BYTES, BYTES, BYTES), generate


@intrinsic
def no_integers(typing: Any) -> Any:
    """Return four zeros."""
    return INTEGERS(), lambda context, builder, signature, values: ir.Constant(_INTS, [0] * 4)


@intrinsic
def no_floats(typing: Any) -> Any:
    """Return four zeros."""
    return FLOATS(), lambda context, builder, signature, values: ir.Constant(_FLOATS, [0.0] * 4)


@intrinsic
def joined(typing: Any, high: Any, low: Any) -> Any:
    """Return 256 · high + low."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.add(builder.shl(values[0], ir.Constant(_INTS, [8] * 4)), values[1])

    return INTEGERS(INTEGERS, INTEGERS), generate


@intrinsic
def as_floats(typing: Any, x: Any) -> Any:
    """Convert integers to float32."""
    return FLOATS(INTEGERS), lambda context, builder, signature, values: builder.sitofp(values[0], _FLOATS)


@intrinsic
def row_floats(typing: Any, four: Any, row: Any) -> Any:
    """Convert the four signed bytes of one of four rows to float32; `row` is a constant."""
    if not isinstance(row, types.IntegerLiteral):
        return None
    number = row.literal_value

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = ir.Constant(_INTS, [4 * number + place for place in range(4)])
        own = builder.shuffle_vector(values[0], values[0], lanes)
        return builder.sitofp(builder.sext(own, _INTS), _FLOATS)

    return FLOATS(BYTES, row), generate


@intrinsic
def lane(typing: Any, x: Any, number: Any) -> Any:
    """Return one of four numbers; `number` is a constant."""
    if not isinstance(number, types.IntegerLiteral):
        return None
    place = number.literal_value
    return types.float32(FLOATS, number), lambda context, builder, signature, values: builder.extract_element(
        values[0], _INT(place)
    )


@intrinsic
def spread(typing: Any, x: Any) -> Any:
    """Put one number into all four lanes."""
    return FLOATS(types.float32), lambda context, builder, signature, values: _spread(builder, values[0])


@intrinsic
def times(typing: Any, x: Any, factor: Any) -> Any:
    """Multiply four numbers by one."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fmul(values[0], _spread(builder, values[1]), flags=_REORDER)

    return FLOATS(FLOATS, types.float32), generate


@intrinsic
def plus_product(typing: Any, sums: Any, a: Any, b: Any) -> Any:
    """Return sums + a b."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, a, b = values
        return builder.fadd(sums, builder.fmul(a, b, flags=_REORDER), flags=_REORDER)

    return FLOATS(FLOATS, FLOATS, FLOATS), generate


@intrinsic
def total(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the sum of all 16 numbers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        a, b, c, d = values
        return _total(builder, builder.fadd(builder.fadd(a, b), builder.fadd(c, d)))

    return types.float32(FLOATS, FLOATS, FLOATS, FLOATS), generate


@intrinsic
def total_of_one(typing: Any, x: Any) -> Any:
    """Return the sum of four numbers."""
    return types.float32(FLOATS), lambda context, builder, signature, values: _total(builder, values[0])


@intrinsic
def lower_nibbles(typing: Any, pairs: Any) -> Any:
    """Return 16 (q − 8) for the q in the lower half of each byte."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        # Flipping the highest bit of q and reading the result as a signed number subtracts 8.
        return builder.shl(builder.xor(values[0], _each(0x88)), _each(4))

    return BYTES(BYTES), generate


@intrinsic
def upper_nibbles(typing: Any, pairs: Any) -> Any:
    """Return 16 (q − 8) for the q in the upper half of each byte."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.and_(builder.xor(values[0], _each(0x88)), _each(0xF0))

    return BYTES(BYTES), generate


@intrinsic
def store(typing: Any, address: Any, x: Any) -> Any:
    """Write four float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(values[1], builder.inttoptr(values[0], _FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.none(types.intp, FLOATS), generate


@intrinsic
def floats_pointer(typing: Any, address: Any) -> Any:
    """Turn an address into a pointer to float32 numbers, of which `numba.carray` makes an array."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], _FLOAT.as_pointer())

    return types.CPointer(types.float32)(types.intp), generate


@intrinsic
def shorts_pointer(typing: Any, address: Any) -> Any:
    """Turn an address into a pointer to 16-bit integers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], ir.IntType(16).as_pointer())

    return types.CPointer(types.int16)(types.intp), generate


@intrinsic
def half_bits(typing: Any, bits: Any) -> Any:
    """Return 2⁻¹¹² times the finite float16 number of these 16 bits.

    Its sign, exponent and fraction are moved to their places in a float32, where exponents count from −127, not −15.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        moved = builder.shl(builder.sext(values[0], _INT), _INT(13))
        return builder.bitcast(builder.and_(moved, _INT(0x8FFFFFFF - (1 << 32))), _FLOAT)

    return types.float32(types.int16), generate


@intrinsic
def magnitude(typing: Any, x: Any) -> Any:
    """Return the bits of |x|, a whole number that is the larger the larger |x| is."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.and_(builder.bitcast(values[0], _INT), _INT(0x7FFFFFFF))

    return types.int32(types.float32), generate


def _add_products(builder: Any, sums: Any, a: Any, b: Any) -> Any:
    """Add to each of four sums the products of four neighbors of 16 signed bytes."""
    if _has_dot_products():
        signature = ir.FunctionType(_INTS, [_INTS, _BYTES, _BYTES])
        return builder.call(
            builder.module.declare_intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", fnty=signature), [sums, a, b]
        )
    products = builder.mul(*(builder.sext(x, ir.VectorType(_INT, 16)) for x in (a, b)))
    for count in (8, 4):
        even, odd = ([ir.Constant(_INT, 2 * i + first) for i in range(count)] for first in (0, 1))
        picks = ir.VectorType(_INT, count)
        products = builder.add(
            builder.shuffle_vector(products, products, ir.Constant(picks, even)),
            builder.shuffle_vector(products, products, ir.Constant(picks, odd)),
        )
    return builder.add(sums, products)


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


def _spread(builder: Any, x: Any) -> Any:
    """Put one number into all four lanes."""
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, x, _INT(0)), undefined, ir.Constant(_INTS, [0] * 4))


def _total(builder: Any, x: Any) -> Any:
    """Add up the four lanes."""
    lanes = [builder.extract_element(x, _INT(lane)) for lane in range(4)]
    return builder.fadd(builder.fadd(lanes[0], lanes[1]), builder.fadd(lanes[2], lanes[3]))


def _each(byte: int) -> Any:
    return ir.Constant(_BYTES, [byte - 256 if byte > 127 else byte] * 16)
