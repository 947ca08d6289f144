"""The affine map."""

import numpy as np
import pytest

from compare import assert_close, assert_equals_torch
from glassformer.ops import linear, linear_backward

PAIR = (linear, linear_backward)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 2, 5, 3), (0, 3)])
def test_linear_equals_pytorch(torch, rng, shape):
    arrays = rng.standard_normal(shape), rng.standard_normal((3, 4)), rng.standard_normal(4)
    assert_equals_torch(PAIR, lambda x, w, b: torch.nn.functional.linear(x, w.T, b), arrays)


def test_without_a_bias_it_has_no_gradient_and_leading_axes_add_up(torch, rng):
    arrays = rng.standard_normal((5, 3)), rng.standard_normal((3, 4))
    assert_equals_torch(PAIR, lambda x, w: x @ w, arrays)
    y, saved = linear(*arrays)
    assert linear_backward(y, saved)[2] is None
    x, w, dy = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 5)), rng.standard_normal((2, 3, 5))
    _, dw, db = linear_backward(dy, linear(x, w, np.zeros(5))[1])
    assert_close(dw, np.einsum("bti,bto->io", x, dy))
    assert_close(db, np.einsum("bto->o", dy))
