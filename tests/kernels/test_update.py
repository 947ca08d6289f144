"""Updates in place, and sums that keep their digits."""

import numpy as np
import pytest

from glassformer import ops
from glassformer.kernels import KERNELS
from glassformer.kernels.update import add_weighted
from kernels.cases import SINGLES, normal

every_update = pytest.mark.parametrize(("name", "kept"), [("adam_update", (0, 2, 3)), ("lion_update", (0, 2))])
every_kind = pytest.mark.parametrize("kind", ["float32", "float64"])


@every_update
@every_kind
def test_an_update_in_place_gives_the_same_bits(rng, name, kept, kind):
    arrays, settings = SINGLES[name](rng, (5, 7), kind)
    want = KERNELS[name](*arrays, **settings)
    gradient = arrays[1].copy()
    have = KERNELS[name](*arrays, **settings, out=tuple(arrays[index] for index in kept))
    for index, x, y in zip(kept, have, want, strict=True):
        assert x is arrays[index]
        assert x.tobytes() == y.tobytes()
    np.testing.assert_array_equal(arrays[1], gradient)


@every_update
def test_results_may_go_to_other_arrays(rng, name, kept):
    arrays, settings = SINGLES[name](rng, (5, 7), "float32")
    before = [x.copy() for x in arrays]
    out = tuple(np.full((5, 7), np.nan, np.float32) for _ in kept)
    want = KERNELS[name](*arrays, **settings)
    for x, y, place in zip(KERNELS[name](*arrays, **settings, out=out), want, out, strict=True):
        assert x is place
        np.testing.assert_array_equal(x, y)
    for x, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, copy)


@every_update
def test_an_op_as_written_never_writes_to_its_arguments(rng, name, kept):
    arrays, settings = SINGLES[name](rng, (5, 7), "float32")
    before = [x.copy() for x in arrays]
    getattr(ops, name).__wrapped__(*arrays, **settings, out=tuple(arrays[index] for index in kept))
    for x, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, copy)


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
