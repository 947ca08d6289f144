"""What optimizers do to one array."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops

ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}


@pytest.fixture
def arrays(rng):
    p, g, mean = rng.standard_normal((3, 4, 5))
    return p, g, mean, rng.uniform(0.1, 1, (4, 5))


def test_adam_follows_its_formula_from_a_first_step_of_any_gradient(arrays):
    p, g, mean, square = arrays
    found = ops.adam_update(*arrays, rate=0.1, root=0.5, penalty=0.2, shrink=0.9, **ADAM)
    g = g + 0.2 * p
    mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g**2
    moved = 0.9 * p - 0.1 * mean / (np.sqrt(square) / 0.5 + 1e-8)
    for actual, expected in zip(found, (moved, mean, square), strict=True):
        assert_close(actual, expected)

    p, g, *_ = arrays
    zeros = np.zeros_like(p)
    for size in (1e-3, 1.0, 1e3):
        # The corrections of averages that start at zero: lr / (1 − β₁) and √(1 − β₂).
        moved, *_ = ops.adam_update(p, size * g, zeros, zeros, rate=0.1 / (1 - 0.9), root=np.sqrt(1 - 0.99), **ADAM)
        assert_close(moved, p - 0.1 * np.sign(g), 1e-3)


def test_lion_moves_every_number_alike_and_the_sum_of_squares_is_of_all(arrays):
    p, g, mean, _ = arrays
    moved, after = ops.lion_update(p, g, mean, lr=0.1, beta1=0.9, beta2=0.99, shrink=0.5)
    assert_close(moved, 0.5 * p - 0.1 * np.sign(0.9 * mean + 0.1 * g))
    assert_close(after, 0.99 * mean + 0.01 * g)
    assert_close(ops.sum_of_squares(arrays[0]), (arrays[0] ** 2).sum())
    assert ops.sum_of_squares(np.zeros((0, 3))) == 0
