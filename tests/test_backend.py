"""What NumPy lacks, and what the two libraries spell differently."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close
from glassformer.backend import is_jax, matmul_wide, normal_cdf, scatter_add

X = np.concatenate((np.linspace(-38, 38, 4001), [0.0, -0.0, 1e-300, -1e-300, 1e-9, -700, 700]))


def test_the_normal_distribution_equals_pytorch_in_every_digit(torch):
    expected = torch.special.ndtr(torch.tensor(X)).numpy()
    assert np.abs(normal_cdf(X) - expected).max() < 5e-16
    # PyTorch loses digits far out on the left; its logarithm does not.
    left = np.linspace(-36, -1, 500)
    exact = torch.exp(torch.special.log_ndtr(torch.tensor(left))).numpy()
    np.testing.assert_allclose(normal_cdf(left), exact, rtol=1e-12)


def test_the_normal_distribution_is_symmetric_and_bounded():
    assert_close(normal_cdf(X) + normal_cdf(-X), np.ones_like(X), 1e-15)
    assert_close(normal_cdf(np.array([-np.inf, 0.0, np.inf])), [0.0, 0.5, 1.0], 5e-16)


def test_the_normal_distribution_takes_complex_numbers():
    density = np.exp(-0.5 * X * X) / np.sqrt(2 * np.pi)
    assert_close(normal_cdf(X + 1e-30j).imag / 1e-30, density, 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_normal_distribution_keeps_its_type_and_agrees_with_jax(jax, dtype):
    x = X.astype(dtype)
    y, moved = normal_cdf(x), normal_cdf(jax.numpy.asarray(x))
    assert y.dtype == moved.dtype == dtype
    assert_close(moved, y, 1e-6 if dtype == "float32" else 1e-15)


@given(st.lists(st.integers(0, 4), max_size=9))
def test_scatter_add_sums_rows_that_share_an_id(ids):
    ids = np.array(ids, dtype=int)
    rows = np.random.default_rng(0).standard_normal((len(ids), 3))
    onehot = np.equal.outer(np.arange(5), ids)
    assert_close(scatter_add((5, 3), ids, rows), onehot @ rows, 1e-14)


def test_scatter_add_takes_any_leading_axes_and_both_libraries(jax, rng):
    ids, rows = rng.integers(0, 5, (2, 3)), rng.standard_normal((2, 3, 4))
    table = scatter_add((5, 4), ids, rows)
    assert_close(table, scatter_add((5, 4), ids.reshape(6), rows.reshape(6, 4)), 0)
    assert_close(scatter_add((5, 4), jax.numpy.asarray(ids), jax.numpy.asarray(rows)), table, 1e-15)


def test_half_precision_products_are_summed_in_float32(jax):
    a = np.ones((1, 3000), dtype=np.float16)
    for x in (a, jax.numpy.asarray(a)):
        y = matmul_wide(x, x.T)
        assert y.dtype == np.float32
        assert float(y[0, 0]) == 3000


def test_wider_products_are_left_alone(rng):
    a = rng.standard_normal((2, 3))
    np.testing.assert_array_equal(matmul_wide(a, a.T), a @ a.T)


def test_arrays_know_their_library(jax):
    assert is_jax(jax.numpy.ones(1))
    assert not is_jax(np.ones(1))
