"""Products with blocks (see `quantized`), which are never turned into floating-point numbers.

Processors multiply bytes several times as fast as floats, so x becomes bytes as well. Each 32 of its numbers are
written as s · X with whole X of 24 bits, and each X as three signed digits to the base 256, its planes:

    x = s X,   X = 65536 X₂ + 256 X₁ + X₀,   s = max |x| / (127 · 65536)
    Σ d q x = d s (65536 Σ q X₂ + 256 Σ q X₁ + Σ q X₀)

All three sums are exact. What is lost is hardly more than float32 loses anyway: x is kept to 24 bits of the largest of
the 32.
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
            # 128 is added to every digit, so that none is negative and each is one byte.
            digits = i(np.rint(x[first + n] * inverse) + f(0x808080))
            planes[k, 0, n] = np.int8((digits >> i(16)) - i(128))
            planes[k, 1, n] = np.int8(((digits >> i(8)) & i(255)) - i(128))
            planes[k, 2, n] = np.int8((digits & i(255)) - i(128))
        for n in range(count, BLOCK):
            planes[k, 0, n] = planes[k, 1, n] = planes[k, 2, n] = np.int8(0)
        scales[k] = scale + total * f(0)  # NaN where some x is not finite: bytes could not tell
        sums[k] = total


@inlined
def size_of(code):
    """Return the bytes of 32 numbers of four rows."""
    return _SIZE_8 if code == Q8_0 else _SIZE_4 if code == Q4_0 else _SIZE_4_SHIFTED


@inlined
def four_8bit(w, x, scales, count):
    sums = simd.no_floats()
    for k in range(count):
        q = w + 8
        digits = _digits(
            simd.bytes_at(q), simd.bytes_at(q + 16), simd.bytes_at(q + 32), simd.bytes_at(q + 48),
            simd.bytes_at(q + 64), simd.bytes_at(q + 80), simd.bytes_at(q + 96), simd.bytes_at(q + 112), x,
        )  # fmt: skip
        sums = simd.plus_product(sums, digits, simd.times(simd.halves_at(w), scales[k]))
        w += _SIZE_8
        x += PLANES
    return sums


@inlined
def four_4bit(w, x, scales, count):
    sums = simd.no_floats()
    for k in range(count):
        scale = simd.times(simd.halves_at(w), scales[k] * np.float32(1 / 16))
        sums = simd.plus_product(sums, _nibble_digits(w + 8, x), scale)
        w += _SIZE_4
        x += PLANES
    return sums


@inlined
def four_4bit_shifted(w, x, scales, totals, count):
    """Return the products of x with four rows of Q4_1:  Σ (d q + m) x = d Σ (q − 8) x + (8 d + m) Σ x."""
    sums = simd.no_floats()
    for k in range(count):
        d = simd.halves_at(w)
        sums = simd.plus_product(sums, _nibble_digits(w + 16, x), simd.times(d, scales[k] * np.float32(1 / 16)))
        sums = simd.plus_product(sums, d, simd.spread(np.float32(8) * totals[k]))
        sums = simd.plus_product(sums, simd.halves_at(w + 8), simd.spread(totals[k]))
        w += _SIZE_4_SHIFTED
        x += PLANES
    return sums


@inlined
def _nibble_digits(w, x):
    """Return 16 Σ (q − 8) X for four rows of 32 nibbles."""
    a, b, c, d = simd.bytes_at(w), simd.bytes_at(w + 16), simd.bytes_at(w + 32), simd.bytes_at(w + 48)
    return _digits(
        simd.lower_nibbles(a), simd.lower_nibbles(b), simd.lower_nibbles(c), simd.lower_nibbles(d),
        simd.upper_nibbles(a), simd.upper_nibbles(b), simd.upper_nibbles(c), simd.upper_nibbles(d), x,
    )  # fmt: skip


@inlined
def _digits(a, b, c, d, e, f, g, h, x):
    """Return Σ q X for four rows of 32 bytes, four bytes of each row in each register."""
    high = simd.joined(_plane(a, b, c, d, e, f, g, h, x), _plane(a, b, c, d, e, f, g, h, x + BLOCK))
    low = _plane(a, b, c, d, e, f, g, h, x + 2 * BLOCK)
    return simd.plus_product(simd.as_floats(low), simd.as_floats(high), simd.spread(np.float32(256)))


@inlined
def _plane(a, b, c, d, e, f, g, h, x):
    return simd.dot(simd.dot(simd.no_integers(), a, b, c, d, simd.bytes_at(x)), e, f, g, h, simd.bytes_at(x + 16))


@compiled
def unpack(code, w, count, y):
    """Write what fours of rows of blocks stand for into y (rows, 32 · count)."""
    size = size_of(code)
    row, place = 4 * y.shape[1], np.intp(y.ctypes.data)
    for group in range(len(y) // GROUP):
        for k in range(count):
            at = place + group * GROUP * row + 4 * BLOCK * k
            d = simd.halves_at(w)
            if code == Q8_0:
                for i in range(8):
                    _unpack_four(simd.bytes_at(w + 8 + 16 * i), d, simd.no_floats(), at + 16 * i, row)
            else:
                m, q = (simd.halves_at(w + 8), w + 16) if code == Q4_1 else (simd.no_floats(), w + 8)
                m = simd.plus_product(m, d, simd.spread(np.float32(8 if code == Q4_1 else 0)))
                d = simd.times(d, np.float32(1 / 16))
                for i in range(4):
                    pairs = simd.bytes_at(q + 16 * i)
                    _unpack_four(simd.lower_nibbles(pairs), d, m, at + 16 * i, row)
                    _unpack_four(simd.upper_nibbles(pairs), d, m, at + 64 + 16 * i, row)
            w += size


@inlined
def _unpack_four(q, d, m, at, row):
    """Write d q + m for four numbers of each of four rows."""
    simd.store(at, simd.plus_product(simd.spread_lane(m, 0), simd.row_floats(q, 0), simd.spread_lane(d, 0)))
    simd.store(at + row, simd.plus_product(simd.spread_lane(m, 1), simd.row_floats(q, 1), simd.spread_lane(d, 1)))
    simd.store(at + 2 * row, simd.plus_product(simd.spread_lane(m, 2), simd.row_floats(q, 2), simd.spread_lane(d, 2)))
    simd.store(at + 3 * row, simd.plus_product(simd.spread_lane(m, 3), simd.row_floats(q, 3), simd.spread_lane(d, 3)))
