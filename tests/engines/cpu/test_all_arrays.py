"""All arrays of a model in one call: the bits of one call for each, and sums that keep their digits."""

import ctypes
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cpu.kernel_cases import KERNELS, SINGLES, normal
from glassformer import ops
from glassformer.core.threads import at_most
from glassformer.engines.cpu import update
from glassformer.engines.cpu.update import adam_on_all, add_to_all, add_weighted

SHAPES = [(3, 4), (), (5,), (0, 2), (1, 1, 7), (300, 400), (2, 90_000)]
SETTINGS = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
STEP = {"rate": 0.1, "root": 0.3}


@pytest.fixture(params=[1, 3])
def some_cores(request):
    with at_most(request.param):
        yield


def draw(rng, kind="float32"):
    return [normal(rng, shape, kind) for shape in SHAPES]


def test_an_array_says_in_its_first_fields_where_its_numbers_are_and_how_many(rng):
    for x in (*draw(rng), normal(rng, (6, 4), "float32")[::2, 1:], np.zeros((), np.float32), np.zeros((2, 0, 3))):
        place = id(x) + update.FIELDS
        numbers, lengths = (ctypes.c_void_p.from_address(place + offset).value for offset in (0, 16))
        axes = ctypes.c_int64.from_address(place + 8).value & 0xFFFFFFFF
        assert (numbers, axes) == (x.ctypes.data, x.ndim)
        assert axes == 0 or tuple((ctypes.c_int64 * axes).from_address(lengths)) == x.shape


@pytest.mark.parametrize("decay", [{"penalty": 0.0, "shrink": 1.0}, {"penalty": 0.1, "shrink": 0.9}])
def test_adam_moves_every_array_as_it_does_one(rng, some_cores, decay):
    ps, gs, means = draw(rng), draw(rng), draw(rng)
    squares = [np.asarray(x * x) for x in draw(rng)]
    decays = [p.ndim > 1 for p in ps]
    want = [
        KERNELS["adam_update"](p, g, mean, square, **SETTINGS, **STEP, **(decay if decayed else {}))
        for p, g, mean, square, decayed in zip(ps, gs, means, squares, decays, strict=True)
    ]
    step = adam_on_all(ps, means, squares, decays, **SETTINGS)
    before = [g.copy() for g in gs]
    assert step(gs, **STEP, **decay)
    for have, expected in zip(zip(ps, means, squares, strict=True), want, strict=True):
        for x, y in zip(have, expected, strict=True):
            assert x.tobytes() == y.tobytes()
    for g, copy in zip(gs, before, strict=True):
        np.testing.assert_array_equal(g, copy)


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17]), max_size=3).map(tuple), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_arrays_of_any_shapes_are_updated_as_by_the_op(shapes, number, seed):
    rng = np.random.default_rng(seed)
    ps, gs, means, squares = ([normal(rng, shape, "float32") for shape in shapes] for _ in range(4))
    squares = [np.asarray(x * x) for x in squares]
    decays = [bool(mark) for mark in rng.integers(2, size=len(shapes))]
    decay = {"penalty": 0.1, "shrink": 0.9}
    want = [
        ops.adam_update.__wrapped__(p, g, mean, square, **SETTINGS, **STEP, **(decay if decayed else {}))
        for p, g, mean, square, decayed in zip(ps, gs, means, squares, decays, strict=True)
    ]
    total = sum(float(np.sum(np.square(g.astype(np.float64)))) for g in gs)
    with at_most(number), mock.patch.object(update, "MANY", 4):  # each few numbers are worth another core
        assert adam_on_all(ps, means, squares, decays, **SETTINGS)(gs, **STEP, **decay)
        assert abs(KERNELS["sum_of_squares"](*gs) - total) <= 1e-5 * total
    for have, expected in zip(zip(ps, means, squares, strict=True), want, strict=True):
        for x, y in zip(have, expected, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
            assert np.abs(x - y).max(initial=0) <= 1e-5 * np.abs(y).max(initial=1)


def test_weighted_sums_and_squares_are_those_of_single_arrays(rng, some_cores):
    totals, others = draw(rng), draw(rng)
    want = [x.copy() for x in totals]
    for total, other in zip(want, others, strict=True):
        add_weighted(total, other, 0.25, 0.75)
    assert add_to_all(totals, others, 0.25, 0.75)
    for total, expected in zip(totals, want, strict=True):
        np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-6)

    arrays = draw(rng)
    squares = [KERNELS["sum_of_squares"](x) for x in arrays]
    assert KERNELS["sum_of_squares"](*arrays) == sum(squares[1:], squares[0])


@pytest.mark.parametrize("spoil", ["float64", "float16", "strided", "read-only", "list"])
def test_other_arrays_are_left_to_others_untouched(rng, spoil):
    def spoiled(arrays):
        x = arrays[0]
        wrong = {
            "float64": lambda: x.astype(np.float64),
            "float16": lambda: x.astype(np.float16),
            "strided": lambda: np.asfortranarray(x),
            "read-only": lambda: np.broadcast_to(x, x.shape),
            "list": lambda: x.tolist(),
        }[spoil]()
        return [wrong, *arrays[1:]]

    ps, gs, means, squares = (draw(rng) for _ in range(4))
    before, marks = [x.copy() for x in ps], [True] * len(ps)
    for arrays in ((spoiled(ps), means, squares), (ps, spoiled(means), squares), (ps, means, spoiled(squares))):
        assert adam_on_all(*arrays, marks, **SETTINGS) is None
    assert not add_to_all(spoiled(ps), gs, 0.5, 0.5)
    if spoil != "read-only":  # what is only read may be read-only
        step = adam_on_all(ps, means, squares, marks, **SETTINGS)
        assert not step(spoiled(gs), **STEP, penalty=0.0, shrink=1.0)
        assert not add_to_all(ps, spoiled(gs), 0.5, 0.5)
        assert spoil == "list" or np.isfinite(ops.sum_of_squares(*spoiled(ps)))
    for x, copy in zip(ps, before, strict=True):
        np.testing.assert_array_equal(x, copy)


def test_no_arrays_are_no_work_and_what_is_not_a_number_is_seen_in_the_sum(rng):
    assert adam_on_all([], [], [], [], **SETTINGS) is None
    assert not add_to_all([], [], 1.0, 1.0)
    assert KERNELS["sum_of_squares"]() is NotImplemented
    arrays = draw(rng)
    arrays[2][1] = np.nan
    assert np.isnan(KERNELS["sum_of_squares"](*arrays))


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
