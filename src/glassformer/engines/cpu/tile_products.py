"""Matrix products of tiles that stay in a core's cache, in vector registers: no way in, no copies, no threads.

A block of the result, `ROWS` rows of `VECTORS` registers, is summed up while it takes one row of B after the other.
Nothing checks an address. Rows of B and of the result must hold whole registers; A may lie in any way.
"""

from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import compiled

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
