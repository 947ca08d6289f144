"""Activations, their gated forms, and the curves that they are made of."""

import numpy as np
import pytest

from compare import assert_close, assert_equals_torch
from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.ops.activation import logistic, normal_cdf


def by_torch(torch):
    f = torch.nn.functional
    return {
        "relu": f.relu,
        "gelu": f.gelu,
        "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
        "silu": f.silu,
    }


X = np.concatenate((np.linspace(-12, 12, 201), [-1e-9, 1e-9, -40, 40, -700, 700]))
NAMES = pytest.mark.parametrize("name", ops.ACTIVATIONS)


@NAMES
@pytest.mark.parametrize("shape", [(-1,), (3, 3, -1)])
def test_activations_equal_pytorch(torch, name, shape):
    assert_equals_torch(ops.ACTIVATIONS[name], by_torch(torch)[name], [X.reshape(shape)])


@NAMES
def test_gated_forms_equal_pytorch(torch, rng, name):
    act = by_torch(torch)[name]
    arrays = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4))
    settings = {"activation": name}
    pair = (ops.gated, ops.gated_backward)
    assert_equals_torch(pair, lambda gate, up: act(gate) * up, arrays, backward=settings, **settings)


def test_gelu_keeps_its_digits_in_the_left_tail():
    x = np.array([-5.0, -10.0, -20.0, -30.0])
    # x Φ(x) to all digits that a double has: math.erfc is off by 1e-13 here, because its argument is rounded.
    exact = [-1.43325785939596956e-6, -7.61985302416052607e-23, -5.50724823721246739e-88, -1.47201417814445612e-196]
    np.testing.assert_allclose(ops.gelu(x)[0], exact, rtol=1e-13)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_an_activation_has_its_limits_far_out(name, dtype, engine, request):
    xp = request.getfixturevalue("jax").numpy if engine == "jax" else np
    forward, backward = ops.ACTIVATIONS[name]
    x = np.array([-np.inf, -1e308, -1e154, -1e38, -40, 40, 1e38, 1e154, 1e308, np.inf, np.nan])
    with use_engine(engine), np.errstate(all="ignore"):
        x = x.astype(dtype)  # 1e308 is infinite in float32
        y, saved = forward(xp.asarray(x))
        dx = backward(xp.full(len(x), 2.0, dtype), saved)
    # −40 / (1 + exp(40)), and the slope there;  −40 Φ(−40) is smaller than any number
    small, slope = (-1.699342e-16, -3.313717e-16) if name == "silu" else (-0.0, 0.0)
    np.testing.assert_allclose(y, [-0.0, -0.0, -0.0, -0.0, small, *x[5:]], rtol=1e-5)
    assert np.all(np.signbit(y[:5]))
    np.testing.assert_allclose(dx, [0, 0, 0, 0, slope, 2, 2, 2, 2, 2, np.nan], rtol=1e-5)


def test_relu_has_slope_zero_at_zero_and_the_two_forms_of_gelu_differ_a_little():
    assert ops.relu_backward(np.ones(1), ops.relu(np.zeros(1))[1]) == 0
    difference = np.abs(ops.gelu(X)[0] - ops.gelu_tanh(X)[0]).max()
    assert 1e-4 < difference < 1e-3
    assert_close(ops.gelu(X)[0], ops.gelu_tanh(X)[0], 1e-3)


POINTS = np.concatenate((np.linspace(-38, 38, 4001), [0.0, -0.0, 1e-300, -1e-300, 1e-9, -700, 700]))


def test_the_normal_distribution_equals_pytorch_and_curves_take_complex_numbers(torch):
    expected = torch.special.ndtr(torch.tensor(POINTS)).numpy()
    assert np.abs(normal_cdf(POINTS) - expected).max() < 5e-16
    # PyTorch loses digits far out on the left; its logarithm does not.
    left = np.linspace(-36, -1, 500)
    exact = torch.exp(torch.special.log_ndtr(torch.tensor(left))).numpy()
    np.testing.assert_allclose(normal_cdf(left), exact, rtol=1e-12)

    assert_close(normal_cdf(POINTS) + normal_cdf(-POINTS), np.ones_like(POINTS), 1e-15)
    assert_close(normal_cdf(np.array([-np.inf, 0.0, np.inf])), [0.0, 0.5, 1.0], 5e-16)

    density = np.exp(-0.5 * POINTS * POINTS) / np.sqrt(2 * np.pi)
    assert_close(normal_cdf(POINTS + 1e-30j).imag / 1e-30, density, 1e-13)
    x = POINTS[np.abs(POINTS) < 30]
    s = logistic(x)
    assert_close(logistic(x + 1e-30j).imag / 1e-30, s * (1 - s), 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("curve", [logistic, normal_cdf])
def test_a_curve_keeps_its_type_and_agrees_with_jax(jax, curve, dtype):
    x = POINTS.astype(dtype)
    y, moved = curve(x), curve(jax.numpy.asarray(x))
    assert y.dtype == moved.dtype == dtype
    assert_close(moved, y, 1e-6 if dtype == "float32" else 1e-15)


def test_the_logistic_function_never_overflows():
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(logistic(np.array([-1e4, 0.0, 1e4])), [0.0, 0.5, 1.0])
