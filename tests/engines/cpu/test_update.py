"""Updates of one array, and sums that keep their digits."""

import numpy as np
import pytest

from engines.cpu.kernel_cases import KERNELS, SINGLES, normal
from glassformer.engines.cpu.update import add_weighted

every_kind = pytest.mark.parametrize("kind", ["float32", "float64"])


@every_kind
def test_a_gradient_that_is_not_a_number_makes_parameters_that_are_none(kind):
    ones, nan = np.ones(3, kind), np.array([1, np.nan, 1], kind)
    for name in ("adam_update", "lion_update"):
        _, settings = SINGLES[name](np.random.default_rng(0), (1,), kind)
        arrays = (ones, nan, ones, ones) if name == "adam_update" else (ones, nan, ones)
        np.testing.assert_array_equal(np.isnan(KERNELS[name](*arrays, **settings)[0]), [False, True, False], name)


def test_many_small_squares_do_not_vanish_beside_their_sum():
    x = np.full(3_000_001, 0.1, np.float32)
    exact = x.size * float(np.float32(0.1)) ** 2
    assert abs(float(KERNELS["sum_of_squares"](x)) - exact) <= 1e-5 * exact


@every_kind
def test_a_weighted_sum_is_added_up_in_place_whatever_the_layout(rng, kind):
    x = normal(rng, (4, 6), kind)
    for total in (normal(rng, (4, 6), kind), normal(rng, (6, 4), kind).T):
        want = 0.25 * total + 0.75 * x
        add_weighted(total, x, 0.25, 0.75)
        np.testing.assert_allclose(total, want, rtol=1e-6 if kind == "float32" else 1e-14, atol=1e-6)
