"""The numbers of a GGUF tensor, out of the blocks in which they are stored.

A block of 256 numbers (Q2_K … Q6_K) holds one or two float16 scales, a small scale for every 16 or 32 numbers, and the
bits of the numbers q. `quantized` reads the blocks of 32 that are also multiplied as they are stored.

    Q5_0         x = d (q − 16)                  Q5_1    x = d q + m
    Q2_K         x = (d s) q − (m t)             s and t of 4 bits for every 16 numbers
    Q4_K, Q5_K   x = (d s) q − (m t)             s and t of 6 bits for every 32 numbers
    Q3_K, Q6_K   x = (d s) (q − 4), (q − 32)     s of 6 or 8 bits for every 16 numbers
"""

import numpy as np

from ..core.arrays import Array
from ..core.quantized import FORMS, read_rows

BLOCKS = {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q2_K": (256, 84),
    "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210),
}  # fmt: skip
"""How many numbers make a block of how many bytes."""
_PART = 4096  # rows at a time, because unpacking takes several times their memory


def dequantize(raw: Array, shape: tuple[int, ...], form: str) -> Array:
    """Return the numbers of a tensor: float32, from its bytes (N,)."""
    numbers, columns = np.empty(shape, np.float32).reshape(-1, shape[-1]), shape[-1]
    rows = raw.reshape(len(numbers), -1)
    # Damaged numbers may be infinite; NumPy need not warn about them.
    with np.errstate(all="ignore"):
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            if form in FORMS:
                numbers[start : start + _PART] = read_rows(form, part, columns)
            else:
                blocks = part.reshape(-1, BLOCKS[form][1])
                numbers[start : start + _PART] = _UNPACKED[form](blocks).reshape(len(part), columns)
    return numbers.reshape(shape)


def _spread(stored: Array, bits: int, run: int) -> Array:
    """Cut bytes (N, n) into numbers of `bits` bits: of every run, the lowest bits of all bytes first, then the next."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (stored.reshape(len(stored), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)).reshape(len(stored), -1)


def _float16(stored: Array) -> Array:
    return np.ascontiguousarray(stored).view(np.float16).astype(np.float32)


def _scaled(d: Array, scales: Array, q: Array) -> Array:
    """Return (d s) q, each scale for an equal share of a block's numbers."""
    return ((d * scales)[..., None] * q.reshape(*scales.shape, -1)).reshape(len(q), -1)


def _q5_0(b: Array) -> Array:
    q = _spread(b[:, 6:], 4, 16) | np.unpackbits(b[:, 2:6], axis=-1, bitorder="little") << 4
    return _float16(b[:, :2]) * (q.astype(np.int8) - np.int8(16))


def _q5_1(b: Array) -> Array:
    q = _spread(b[:, 8:], 4, 16) | np.unpackbits(b[:, 4:8], axis=-1, bitorder="little") << 4
    return _float16(b[:, :2]) * q + _float16(b[:, 2:4])


def _q2_k(b: Array) -> Array:
    scales, q = b[:, :16], _spread(b[:, 16:80], 2, 32)
    least = _scaled(_float16(b[:, 82:]), scales >> 4, np.ones_like(q))
    return _scaled(_float16(b[:, 80:82]), scales & 15, q) - least


def _q3_k(b: Array) -> Array:
    q = _spread(b[:, 32:96], 2, 32) | _spread(b[:, :32], 1, 32) << 2
    scales = _spread(b[:, 96:104], 4, 8) | _spread(b[:, 104:108], 2, 4) << 4
    return _scaled(_float16(b[:, 108:]), scales.astype(np.int8) - np.int8(32), q.astype(np.int8) - np.int8(4))


def _with_least(b: Array, q: Array) -> Array:
    """Return (d s) q − (m t): s and t are four times 6 bits, then four times 4 bits and 2 bits of those before."""
    s, t, high = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = np.concatenate((s & 63, (high & 15) | (s >> 2 & 48)), axis=-1)
    least = np.concatenate((t & 63, (high >> 4) | (t >> 2 & 48)), axis=-1)
    return _scaled(_float16(b[:, :2]), scales, q) - _scaled(_float16(b[:, 2:4]), least, np.ones_like(q))


def _q6_k(b: Array) -> Array:
    q = _spread(b[:, :128], 4, 64) | _spread(b[:, 128:192], 2, 32) << 4
    return _scaled(_float16(b[:, 208:]), b[:, 192:208].view(np.int8), q.astype(np.int8) - np.int8(32))


_UNPACKED = {
    "Q5_0": _q5_0, "Q5_1": _q5_1, "Q2_K": _q2_k, "Q3_K": _q3_k, "Q6_K": _q6_k,
    "Q4_K": lambda b: _with_least(b, _spread(b[:, 16:], 4, 32)),
    "Q5_K": lambda b: _with_least(b, _spread(b[:, 48:], 4, 32) | _spread(b[:, 16:48], 1, 32) << 4),
}  # fmt: skip
