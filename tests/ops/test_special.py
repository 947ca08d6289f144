"""The curves that activations are made of, to the last digit."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.ops.activation import logistic, normal_cdf

X = np.concatenate((np.linspace(-38, 38, 4001), [0.0, -0.0, 1e-300, -1e-300, 1e-9, -700, 700]))


def test_the_normal_distribution_equals_pytorch_in_every_digit(torch):
    expected = torch.special.ndtr(torch.tensor(X)).numpy()
    assert np.abs(normal_cdf(X) - expected).max() < 5e-16
    # PyTorch loses digits far out on the left; its logarithm does not.
    left = np.linspace(-36, -1, 500)
    exact = torch.exp(torch.special.log_ndtr(torch.tensor(left))).numpy()
    np.testing.assert_allclose(normal_cdf(left), exact, rtol=1e-12)

    assert_close(normal_cdf(X) + normal_cdf(-X), np.ones_like(X), 1e-15)
    assert_close(normal_cdf(np.array([-np.inf, 0.0, np.inf])), [0.0, 0.5, 1.0], 5e-16)


def test_both_curves_take_complex_numbers():
    density = np.exp(-0.5 * X * X) / np.sqrt(2 * np.pi)
    assert_close(normal_cdf(X + 1e-30j).imag / 1e-30, density, 1e-13)
    x = X[np.abs(X) < 30]
    s = logistic(x)
    assert_close(logistic(x + 1e-30j).imag / 1e-30, s * (1 - s), 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("curve", [logistic, normal_cdf])
def test_a_curve_keeps_its_type_and_agrees_with_jax(jax, curve, dtype):
    x = X.astype(dtype)
    y, moved = curve(x), curve(jax.numpy.asarray(x))
    assert y.dtype == moved.dtype == dtype
    assert_close(moved, y, 1e-6 if dtype == "float32" else 1e-15)


def test_the_logistic_function_never_overflows():
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(logistic(np.array([-1e4, 0.0, 1e4])), [0.0, 0.5, 1.0])
