"""Products with blocks (see `quantized`), which are never turned into floating-point numbers.

Processors multiply bytes several times as fast as floats, so x becomes bytes as well. Each 32 of its numbers are
written as s · X with whole X of 24 bits, and each X as three digits to the base 256, its planes:

    x = s X,   X = 65536 X₂ + 256 X₁ + X₀,   s = max |x| / (127 · 65536)
    Σ d q x = d s (65536 Σ q X₂ + 256 Σ q X₁ + Σ q X₀)

All three sums are exact. What is lost is hardly more than float32 loses anyway: x is kept to 24 bits of the largest of
the 32. Which digits have a sign depends on what the processor can multiply: see `ZEROS`.
"""

import numpy as np

from ...quantized import BLOCK, FORMS, GROUP
from . import vectorized_rows as simd
from .compile import bits_to_float, compiled, inlined

F32, F16, Q8_0, Q4_0, Q4_1 = range(5)
CODES = {"F16": F16, "Q8_0": Q8_0, "Q4_0": Q4_0, "Q4_1": Q4_1}
PLANES = 3 * BLOCK  # bytes of 32 numbers of x
_SIZE_8, _SIZE_4, _SIZE_4_SHIFTED = (GROUP * FORMS[name].size for name in ("Q8_0", "Q4_0", "Q4_1"))
_LARGEST = 127 * 65536
AHEAD = 2048  # bytes between what is multiplied and what memory is asked for


@compiled
def split(x, planes, scales, sums):
    """Write the planes of x (I,), and for each 32 of its numbers the scale and the sum; the last may be fewer."""
    f, i = np.float32, np.int32
    for k in range(scales.size):
        first, count = BLOCK * k, min(BLOCK, x.size - BLOCK * k)
        largest, total = i(0), f(0)
        for n in range(count):
            largest = max(largest, simd.magnitude(x[first + n]))
            total += x[first + n]
        scale = bits_to_float(largest) / f(_LARGEST)
        inverse = f(1) / scale if scale > f(0) else f(0)
        for n in range(count):
            digits = i(np.rint(x[first + n] * inverse) + f(simd.ZEROS))
            planes[k, 0, n] = np.int8((digits >> i(16)) - i(simd.SIGNED))
            planes[k, 1, n] = np.int8(((digits >> i(8)) & i(255)) - i(simd.SIGNED))
            planes[k, 2, n] = np.int8((digits & i(255)) - i(simd.SIGNED))
        for n in range(count, BLOCK):
            planes[k, 0, n], planes[k, 1, n], planes[k, 2, n] = np.int8(128 - simd.SIGNED), np.int8(0), np.int8(0)
        scales[k] = scale + total * f(0)  # NaN where some x is not finite: bytes could not tell
        sums[k] = total


@inlined
def size_of(code):
    """Return the bytes of 32 numbers of four rows."""
    return _SIZE_8 if code == Q8_0 else _SIZE_4 if code == Q4_0 else _SIZE_4_SHIFTED


@inlined
def four_8bit(w, x, scales, count):
    sums = simd.no_lanes()
    for k in range(count):
        simd.prefetch(w + AHEAD)
        simd.prefetch(w + AHEAD + 64)
        digits = _digits(simd.bytes_at(w + 8), simd.bytes_at(w + 72), x)
        sums = simd.plus_product(sums, digits, simd.times(simd.halves_at(w), simd.spread_lanes(scales[k])))
        w += _SIZE_8
        x += PLANES
    return simd.each_row(sums)


@inlined
def four_4bit(code, w, x, scales, totals, count):
    """Return the products of x with four rows of Q4_0 or Q4_1:  Σ (d q + m) x = d Σ q x + m Σ x,  of Q4_0 m = −8 d."""
    sums, rest = simd.no_lanes(), simd.no_lanes()
    for k in range(count):
        simd.prefetch(w + AHEAD)
        d, total = simd.halves_at(w), totals[k] if code == Q4_1 else np.float32(-8) * totals[k]
        m, pairs = (simd.halves_at(w + 8), w + 16) if code == Q4_1 else (d, w + 8)
        pairs = simd.bytes_at(pairs)
        digits = _digits(simd.lower_nibbles(pairs), simd.upper_nibbles(pairs), x)
        sums = simd.plus_product(sums, digits, simd.times(d, simd.spread_lanes(scales[k])))
        rest = simd.plus_product(rest, m, simd.spread_lanes(total))
        w += size_of(code)
        x += PLANES
    return simd.plus(simd.each_row(sums), simd.first_run(rest))


@inlined
def _digits(a, b, x):
    """Return Σ q X for four rows of 32 bytes, of which a holds 16 of each row and b the others."""
    high = _plane(simd.minus_zeros(a, b), a, b, x)
    high = _plane(simd.shifted(high), a, b, x + BLOCK)
    low = _plane(simd.no_sums(), a, b, x + 2 * BLOCK)
    return simd.plus_product(simd.as_floats(low), simd.as_floats(high), simd.spread_lanes(np.float32(256)))


@inlined
def _plane(sums, a, b, x):
    return simd.dot(simd.dot(sums, a, simd.digits_at(x)), b, simd.digits_at(x + 16))


@compiled
def unpack(code, w, count, y):
    """Write what fours of rows of blocks stand for into y (rows, 32 · count)."""
    row, place = 4 * y.shape[1], np.intp(y.ctypes.data)
    for group in range(len(y) // GROUP):
        unpack_four(code, w + group * count * size_of(code), count, place + group * GROUP * row, row)


@compiled
def unpack_four(code, w, count, at, row):
    """Write what four rows of blocks stand for, `row` bytes from one to the next."""
    for _ in range(count):
        simd.prefetch(w + AHEAD)
        d = simd.halves_at(w)
        if code == Q8_0:
            simd.prefetch(w + AHEAD + 64)
            _unpack_half(simd.bytes_at(w + 8), d, simd.no_lanes(), at, row)
            _unpack_half(simd.bytes_at(w + 72), d, simd.no_lanes(), at + 64, row)
        else:
            m, q = (simd.halves_at(w + 8), w + 16) if code == Q4_1 else (simd.no_lanes(), w + 8)
            m = simd.plus_product(m, d, simd.spread_lanes(np.float32(0 if code == Q4_1 else -8)))
            pairs = simd.bytes_at(q)
            _unpack_half(simd.lower_nibbles(pairs), d, m, at, row)
            _unpack_half(simd.upper_nibbles(pairs), d, m, at + 64, row)
        w += size_of(code)
        at += 4 * BLOCK


@inlined
def _unpack_half(q, d, m, at, row):
    """Write d q + m for 16 numbers of each of four rows."""
    f, s, store = simd.row_floats, simd.spread_row, simd.store_sixteen
    store(at, simd.plus_product(s(m, 0), f(q, 0), s(d, 0)))
    store(at + row, simd.plus_product(s(m, 1), f(q, 1), s(d, 1)))
    store(at + 2 * row, simd.plus_product(s(m, 2), f(q, 2), s(d, 2)))
    store(at + 3 * row, simd.plus_product(s(m, 3), f(q, 3), s(d, 3)))
