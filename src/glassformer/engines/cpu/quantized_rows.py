"""Products with blocks (see `quantized`), which are never turned into floating-point numbers.

Processors multiply bytes several times as fast as floats, so x becomes bytes as well. Each 32 of its numbers are
written as s · X with whole X of 24 bits, and each X as three digits to the base 256, its planes:

    x = s X,   X = 65536 X₂ + 256 X₁ + X₀,   s = max |x| / (127 · 65536)
    Σ d q x = d s (65536 Σ q X₂ + 256 Σ q X₁ + Σ q X₀)

All three sums are exact. What is lost is hardly more than float32 loses anyway: x is kept to 24 bits of the largest of
the 32. Digits are from −128 to 127. Some processors multiply them by bytes without sign only, so q + 128 stands for a q
with a sign there, and the sums start with what is too much:

    −128 Σ X = 65536 a + b      Σ q X₂ starts with a, Σ q X₀ with b
"""

import numpy as np

from ...core.quantized import BLOCK, FORMS, GROUP
from . import simd
from .compile import bits_to_float, compiled, inlined

F32, F16, Q8_0, Q4_0, Q4_1 = range(5)
CODES = {"F16": F16, "Q8_0": Q8_0, "Q4_0": Q4_0, "Q4_1": Q4_1}
PLANES = 4 * BLOCK  # bytes of 32 numbers of x: three digits of each, and what two of the sums start with
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
            digits = i(np.rint(x[first + n] * inverse) + f(0x808080))  # each digit without sign, 128 too large
            planes[k, 0, n] = np.int8((digits >> i(16)) - i(128))
            planes[k, 1, n] = np.int8(((digits >> i(8)) & i(255)) - i(128))
            planes[k, 2, n] = np.int8((digits & i(255)) - i(128))
        for n in range(count, BLOCK):
            planes[k, 0, n], planes[k, 1, n], planes[k, 2, n] = np.int8(0), np.int8(0), np.int8(0)
        scales[k] = scale + total * f(0)  # NaN where some x is not finite: bytes could not tell
        sums[k] = total
    for k in range(scales.size):
        _write_starts(np.intp(planes.ctypes.data) + k * PLANES)


@inlined
def _write_starts(x):
    """Write where the sums of a block of x start, behind its digits."""
    added = simd.added()
    high = _plane(simd.no_sums(), added, added, x)
    low = _plane(simd.no_sums(), added, added, x + BLOCK)
    simd.store_starts(x + 3 * BLOCK, high, _plane(simd.shifted(low), added, added, x + 2 * BLOCK))


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
        a, b = _signed(w + 8), _signed(w + 72)
        digits = _digits(a, b, x, simd.starts_at(x + 3 * BLOCK), simd.starts_at(x + 3 * BLOCK + 16))
        factors = simd.times(simd.halves_at(w), simd.spread(scales[k]))
        sums = simd.plus_product(sums, digits, simd.each_lane(factors))
        w += _SIZE_8
        x += PLANES
    return simd.each_row(sums)


@inlined
def _signed(w):
    return simd.without_sign(simd.in_lanes(simd.bytes_at(w)))


@inlined
def four_4bit(code, w, x, scales, totals, count):
    """Return the products of x with four rows of Q4_0 or Q4_1:  Σ (d q + m) x = d Σ q x + m Σ x,  of Q4_0 m = −8 d."""
    sums, rest = simd.no_lanes(), simd.no_floats()
    for k in range(count):
        simd.prefetch(w + AHEAD)
        d, total = simd.halves_at(w), totals[k] if code == Q4_1 else np.float32(-8) * totals[k]
        m, pairs = (simd.halves_at(w + 8), w + 16) if code == Q4_1 else (d, w + 8)
        pairs = simd.in_lanes(simd.bytes_at(pairs))
        digits = _digits(simd.lower_nibbles(pairs), simd.upper_nibbles(pairs), x, simd.no_sums(), simd.no_sums())
        sums = simd.plus_product(sums, digits, simd.each_lane(simd.times(d, simd.spread(scales[k]))))
        rest = simd.plus_product(rest, m, simd.spread(total))
        w += size_of(code)
        x += PLANES
    return simd.plus(simd.each_row(sums), rest)


@inlined
def _digits(a, b, x, high, low):
    """Return Σ q X for four rows of 32 bytes, of which a holds 16 of each row and b the others; sums start so high."""
    high = simd.shifted(_plane(high, a, b, x))
    high, low = _plane(high, a, b, x + BLOCK), _plane(low, a, b, x + 2 * BLOCK)
    return simd.plus_product(simd.as_floats(low), simd.as_floats(high), simd.spread_lanes(np.float32(256)))


@inlined
def _plane(sums, a, b, x):
    return simd.dot(simd.dot(sums, a, simd.digits_at(x)), b, simd.digits_at(x + 16))


@compiled
def unpack(code, w, count, y):
    """Write what fours of rows of blocks stand for into y (rows, 32 · count)."""
    row, start = 4 * y.shape[1], np.intp(y.ctypes.data)
    for group in range(len(y) // GROUP):
        unpack_four(code, w + group * count * size_of(code), count, start + group * GROUP * row, row)


@compiled
def unpack_four(code, w, count, at, row):
    """Write what four rows of blocks stand for, `row` bytes from one to the next."""
    for _ in range(count):
        simd.prefetch(w + AHEAD)
        d = simd.halves_at(w)
        if code == Q8_0:
            simd.prefetch(w + AHEAD + 64)
            _unpack_half(simd.bytes_at(w + 8), d, simd.no_floats(), at, row)
            _unpack_half(simd.bytes_at(w + 72), d, simd.no_floats(), at + 64, row)
        else:
            m, q = (simd.halves_at(w + 8), w + 16) if code == Q4_1 else (simd.no_floats(), w + 8)
            m = simd.plus_product(m, d, simd.spread(np.float32(0 if code == Q4_1 else -8)))
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
