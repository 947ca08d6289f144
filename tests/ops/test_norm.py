"""Layer normalization and its root-mean-square form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close, assert_equals_torch
from glassformer.ops import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward

LAYER, RMS = (layer_norm, layer_norm_backward), (rms_norm, rms_norm_backward)
EPS = pytest.mark.parametrize("eps", [1e-12, 1e-6, 1e-5, 0.1])
SHAPE = pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])


@EPS
@SHAPE
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_layer_norm_and_rms_norm_equal_pytorch(torch, rng, shape, eps, size):
    f = torch.nn.functional.layer_norm
    arrays = size * rng.standard_normal(shape), rng.standard_normal(5), rng.standard_normal(5)
    assert_equals_torch(LAYER, lambda x, w, b: f(x, (5,), w, b, eps), arrays, eps=eps)
    assert_equals_torch(LAYER, lambda x, w: f(x, (5,), w, None, eps), arrays[:2], eps=eps)
    f = torch.nn.functional.rms_norm
    arrays = size * rng.standard_normal(shape), rng.standard_normal(5)
    assert_equals_torch(RMS, lambda x, w: f(x, (5,), w, eps), arrays, eps=eps)


@given(st.floats(-100, 100), st.floats(0.1, 100), st.integers(2, 9))
def test_layer_norm_forgets_shift_and_scale(shift, scale, width):
    x = np.random.default_rng(width).standard_normal((3, width))
    gamma = np.ones(width)
    y, _ = layer_norm(x, gamma, eps=0.0)
    assert_close(layer_norm(shift + scale * x, gamma, eps=0.0)[0], y, 1e-9)
    assert_close(y.mean(-1), np.zeros(3))
    assert_close((y * y).mean(-1), np.ones(3))


def test_the_gradient_is_orthogonal_to_what_the_norm_forgets_and_eps_stands_inside_the_root(rng):
    x, gamma, dy = rng.standard_normal((4, 6)), rng.standard_normal(6), rng.standard_normal((4, 6))
    dx, _, _ = layer_norm_backward(dy, layer_norm(x, gamma, eps=0.0)[1])
    assert_close(dx.sum(-1), np.zeros(4))
    assert_close((dx * x).sum(-1), np.zeros(4), 1e-11)
    dx, _ = rms_norm_backward(dy, rms_norm(x, gamma, eps=0.0)[1])
    assert_close((dx * x).sum(-1), np.zeros(4), 1e-11)

    x = np.array([[3e-3, -3e-3]])
    y, saved = layer_norm(x, np.ones(2), eps=1.6e-5)  # variance 9e-6: the root of their sum is 5e-3
    assert_close(y, [[0.6, -0.6]])
    assert_close(saved.rstd, [[200.0]])
    assert_close(rms_norm(x, np.ones(2), eps=1.6e-5)[0], [[0.6, -0.6]])
