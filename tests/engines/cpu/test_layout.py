"""Which arrays kernels take."""

import numpy as np
import pytest

from engines.cpu.kernel_cases import KERNELS, PAIRS, SINGLES, case_of
from glassformer import ops
from glassformer.engines.cpu.layout import is_array, is_plain, rows

SWAPPED = np.dtype(np.float32).newbyteorder()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_real_arrays_in_c_order_are_plain(dtype):
    x = np.zeros((2, 3), dtype)
    assert is_plain(x, x[0], np.zeros((), dtype))
    assert is_array(x, x.dtype, (2, 3))
    assert not is_array(x, x.dtype, (3, 2))


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((2, 3), np.float16),
        np.zeros((2, 3), SWAPPED),
        np.zeros((2, 3), int),
        np.zeros((3, 2)).T,
        np.zeros((2, 6))[:, ::2],
        np.zeros((2, 3)).view(np.matrix),
        np.float64(1),
        [1.0, 2.0],
        None,
        3.0,
    ],
    ids=repr,
)
def test_others_are_not(x):
    assert not is_plain(x)
    assert not is_plain(np.zeros((2, 3)), x)
    assert not is_array(x, np.dtype(np.float64), (2, 3))


def test_types_are_not_mixed():
    assert not is_plain(np.zeros(2), np.zeros(2, np.float32))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), (2, 0), (2, 0, 3), (2, 3, 0), (2, 3, 4)])
def test_rows_are_all_axes_but_the_last(shape):
    x = np.zeros(shape)
    assert rows(x).shape == (int(np.prod(shape[:-1])), shape[-1])
    assert not x.size or np.shares_memory(rows(x), x)


@pytest.mark.parametrize("name", [*PAIRS, *SINGLES])
def test_numbers_in_another_order_of_bytes_are_left_to_the_op(name):
    if name in PAIRS:
        case = case_of(name, (2, 2, 4, 6), "float32", 0)
        arrays, settings = (*case.arrays, *case.extra), case.settings
    else:
        arrays, settings = SINGLES[name](np.random.default_rng(0), (2, 3), "float32")
    swapped = [x.astype(x.dtype.newbyteorder()) if isinstance(x, np.ndarray) else x for x in arrays]
    assert KERNELS[name](*swapped, **settings) is NotImplemented


@pytest.mark.parametrize("op", [ops.softmax, ops.relu, ops.gelu, ops.sum_of_squares], ids=lambda op: op.__name__)
def test_what_is_no_array_is_left_to_the_op(op):
    for x in ([1.0, 2.0], None, "text"):
        assert KERNELS[op.__name__](x) is NotImplemented
