"""Matrix products in vector registers."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.engines.cpu.tile_products import BYTES, multiply_tiles


def rounded(rng, rows, columns, kind):
    """Return random numbers whose rows hold whole registers, as a matrix and as such rows."""
    lanes = BYTES // np.dtype(kind).itemsize
    x = rng.standard_normal((rows, -(-columns // lanes) * lanes)).astype(kind)
    return x[:, :columns], x


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (6, 64, 3), (13, 150, 300), (7, 33, 128)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_all_sizes_equal_those_of_numpy(rng, kind, shape, turned):
    m, n, k = shape
    a = rng.standard_normal((k, m)).astype(kind).T if turned else rng.standard_normal((m, k)).astype(kind)
    (b, b_rows), (c, c_rows) = rounded(rng, k, n, kind), rounded(rng, m, n, kind)
    for beta in (0, 1):
        wanted = a @ b + beta * c
        multiply_tiles(
            m, n * b.itemsize, k, a.ctypes.data, *a.strides, b_rows.ctypes.data, b.strides[0], b.dtype.type(beta),
            c_rows.ctypes.data, c.strides[0],
        )  # fmt: skip
        assert_close(c, wanted, 1e-12 if kind == "float64" else 1e-5)
