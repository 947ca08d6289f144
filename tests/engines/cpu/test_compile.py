"""The scalar functions that kernels share."""

import numba
import numpy as np
import pytest
from numba import types

from glassformer.engines.cpu.compile import REORDER, address_of, call, exp, maximum, minimum

compiled = numba.njit(fastmath=set(REORDER), error_model="numpy")  # as kernels are, but not kept on disk


@compiled
def exponentials(x, y):
    for i in range(x.size):
        y[i] = exp(x[i])


@compiled
def extremes(x, y, larger, smaller):
    for i in range(x.size):
        larger[i] = maximum(x[i], y[i])
        smaller[i] = minimum(x[i], y[i])


@compiled
def put_first(x, y):
    if x.size > 3:
        raise ValueError("too many")
    y[0] = x[0]


@compiled
def called(address, x, y):
    call(address, (x, y))


def exp_of(x):
    y = np.empty_like(x)
    exponentials(x, y)
    return y


def test_the_polynomial_has_the_digits_that_are_promised():
    x = np.concatenate((np.linspace(-87, 88, 100_003), np.linspace(-1, 1, 10_001))).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.all(np.abs(exp_of(x) - exact) <= 2e-7 * (1 + np.abs(x)) * exact)
    x = np.linspace(-700, 700, 10_001)
    np.testing.assert_allclose(exp_of(x), np.exp(x), rtol=1e-15)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_infinities_and_numbers_that_are_none(kind):
    x = np.array([-np.inf, np.inf, np.nan, 0, -1e30, 1e30], dtype=kind)
    np.testing.assert_array_equal(exp_of(x), [0, np.inf, np.nan, 1, 0, np.inf])


def test_what_is_too_small_for_a_normal_float32_is_zero_or_tiny():
    x = np.linspace(-200, -87.4, 1000, dtype=np.float32)
    y = exp_of(x)
    assert np.all((y >= 0) & (y < 2e-38))
    assert np.all(np.diff(y) >= 0)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_extremes_keep_what_is_not_a_number(kind):
    x = np.array([1, 2, np.nan, 3, -np.inf, np.inf], dtype=kind)
    y = np.array([2, 1, 3, np.nan, 4, np.nan], dtype=kind)
    larger, smaller = np.empty_like(x), np.empty_like(x)
    extremes(x, y, larger, smaller)
    np.testing.assert_array_equal(larger, np.maximum(x, y))
    np.testing.assert_array_equal(smaller, np.minimum(x, y))


def test_a_kernel_is_called_by_its_address_and_its_errors_are_not_lost():
    row = types.Array(types.float32, 1, "C")
    x, y = np.array([2.5, 1], np.float32), np.zeros(2, np.float32)
    called(address_of(put_first, row, row), x, y)
    assert y.tolist() == [2.5, 0]
    row = types.Array(types.float32, 1, "C")
    address = address_of(put_first, row, row)
    with pytest.raises(ValueError, match="too many"):
        called(address, np.ones(4, np.float32), np.zeros(1, np.float32))
