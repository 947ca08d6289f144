"""What kernels do at the edge: scalar functions, numbers that are none, and arguments that do not fit."""

from dataclasses import replace

import numba
import numpy as np
import pytest
from numba import types

from engines.cpu.kernel_cases import KERNELS, PAIRS, case_of, normal
from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import flatten, like
from glassformer.engines.cpu.compile import REORDER, address_of, call, exp, maximum, minimum
from glassformer.ops import CAUSAL
from glassformer.proofs.case import OpCase

every_pair = pytest.mark.parametrize("name", PAIRS)
SHAPE = (2, 2, 4, 6)
# What these know to be zero they do not multiply: 0 · NaN, which the op computes, is not there.
SKIPS = {"attention", "attention_tiled", "cross_entropy"}


def usual(name, kind="float64"):
    """A case of the op on plain arrays, without anything optional."""
    case = case_of(name, SHAPE, kind, 0)
    if name.startswith("attention"):
        q, k, v = (normal(np.random.default_rng(i), SHAPE, kind) for i in range(3))
        return replace(case, arrays=(q, k, v, None), settings={"pattern": CAUSAL})
    if name == "softmax":
        return replace(case, arrays=(normal(np.random.default_rng(0), SHAPE, kind),))
    return case


def run(case, dy=None):
    """The result and the gradients of a case."""
    with np.errstate(all="ignore"):
        y, saved = case.forward()
        dy = np.ones_like(y) if dy is None else dy
        return {"y": y, "grads": case.gradients(dy, saved)}


def assert_spreads_alike(name, have, want):
    """Expect NaN in the places where the op has it; where a kernel skips what is masked, some of them."""
    for part, x in flatten(want).items():
        found, expected = np.isnan(flatten(have)[part]), np.isnan(x)
        if name in SKIPS:
            assert found.any() == expected.any(), part
            assert not (found & ~expected).any(), part
        else:
            np.testing.assert_array_equal(found, expected, err_msg=part)


@every_pair
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_what_is_not_a_number_stays_so_and_spreads_as_in_the_op_also_in_gradients(name, kind):
    for index in range(len(usual(name).arrays)):
        case = usual(name, kind)
        if case.arrays[index] is None:
            continue
        x = case.arrays[index].copy()
        x[tuple(0 for _ in x.shape)] = np.nan
        case = replace(case, arrays=(*case.arrays[:index], x, *case.arrays[index + 1 :]))
        have = run(case)
        with use_engine("numpy"):
            want = run(case)
        assert_spreads_alike(name, have, want)

    case = usual(name, kind)
    dy = np.ones_like(case.forward()[0])
    dy[tuple(0 for _ in dy.shape)] = np.nan
    have = run(case, dy)
    with use_engine("numpy"):
        want = run(case, dy)
    assert_spreads_alike(name, have, want)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu", "gated"])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_activations_far_out_are_those_of_the_op(name, kind):
    x = np.array([-1e4, -300, -100, -90, -40, -20, 20, 40, 90, 100, 300, 1e4, np.inf], dtype=kind)
    arrays = (x, np.ones_like(x)) if name == "gated" else (x,)
    have = getattr(ops, name)(*arrays)[0]
    with use_engine("numpy"):
        want = getattr(ops, name)(*arrays)[0]
    np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 if kind == "float32" else 1e-12)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_gradient_that_relu_stops_may_be_infinite_and_blind_rows_are_zeros(kind):
    x, dy = np.array([-1.0, 1.0], kind), np.array([np.inf, np.inf], kind)
    np.testing.assert_array_equal(ops.relu_backward(dy, x), [0, np.inf])
    np.testing.assert_array_equal(
        ops.gated_backward(dy, ops.gated(x, x, activation="relu")[1], activation="relu")[0][0], 0
    )

    x = np.full((2, 3), -np.inf, kind)
    np.testing.assert_array_equal(KERNELS["softmax"](x)[0], np.zeros((2, 3)))
    q = normal(np.random.default_rng(0), (1, 1, 3, 2), kind)
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    y, saved = KERNELS["attention"](q, q, q, mask=mask)
    np.testing.assert_array_equal(y[0, 0, 1], np.zeros(2))
    np.testing.assert_array_equal(saved.weights[0, 0, 1], np.zeros(3))
    dq, dk, dv, _ = KERNELS["attention_backward"](np.ones_like(q), saved)
    np.testing.assert_array_equal(dq[0, 0, 1], np.zeros(2))
    assert np.isfinite(dk).all()
    assert np.isfinite(dv).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nan_in_a_row_that_is_ignored_reaches_neither_loss_nor_gradient(smoothing, rng):
    logits, targets = normal(rng, (3, 5), np.float32), np.array([1, ops.IGNORE, 3])
    logits[1, 2] = np.nan
    for engine in ("numpy", "cpu"):
        with use_engine(engine):
            loss, saved = ops.cross_entropy(logits, targets, smoothing=smoothing)
            dlogits = ops.cross_entropy_backward(1.0, saved, smoothing=smoothing)
        assert np.isfinite(loss)
        assert np.isfinite(dlogits).all()
        assert not dlogits[1].any()


@pytest.mark.parametrize("size", [1e30, 3e38])
def test_norms_of_huge_numbers_are_those_of_the_op(size, rng):
    x, gamma, dy = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 17), 17, (3, 17)))
    found = {}
    for engine in ("numpy", "cpu"):
        with use_engine(engine), np.errstate(all="ignore"):
            y, saved = ops.layer_norm(x * np.float32(size), gamma, gamma)
            found[engine] = [y, *ops.layer_norm_backward(dy, saved)]
    for have, want in zip(found["cpu"], found["numpy"], strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_losses_of_impossible_targets_are_infinite(kind):
    logits = np.array([[0.0, -np.inf], [-np.inf, -np.inf]], kind)
    loss, saved = KERNELS["cross_entropy"](logits, np.array([1, ops.IGNORE]))
    assert loss == np.inf
    with use_engine("numpy"), np.errstate(invalid="ignore"):
        assert_equal_records(saved, ops.cross_entropy(logits, np.array([1, ops.IGNORE]))[1])


def assert_equal_records(have, want):
    for name, x in flatten(want).items():
        np.testing.assert_array_equal(flatten(have)[name], x, err_msg=name)


@every_pair
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_views_of_every_layout_give_the_same(name, kind):
    case = usual(name, kind)
    y = case.forward()[0]
    dy = np.asarray(np.random.default_rng(3).standard_normal(np.shape(y)), dtype=kind)
    odd = replace(case, arrays=tuple(None if x is None else _every_other(x) for x in case.arrays))
    want = run(case, dy)
    for have in (run(odd, dy), run(case, _every_other(dy)), run(odd, _every_other(dy))):
        for part, x in flatten(want).items():
            np.testing.assert_allclose(flatten(have)[part], x, rtol=1e-5, atol=1e-5, err_msg=part)


def _every_other(x):
    """The same numbers as a view of an array twice as wide whose axes are turned around."""
    if x.ndim == 0:
        return x
    room = np.zeros((2 * x.shape[-1], *x.shape[-2::-1]), x.dtype)
    view = room[::2].transpose()
    view[...] = x
    return view


@every_pair
def test_arrays_of_jax_never_reach_a_kernel(jax, name):
    case = usual(name)
    want = run(case)
    have = case.within(jax.numpy)
    y, saved = have.forward()
    # A plain number, or an array of NumPy's, as the gradient: the record decides.
    dy = 1.0 if np.ndim(y) == 0 else np.ones(y.shape)
    grads = have.gradients(dy, saved)
    for part, x in flatten(want["grads"]).items():
        np.testing.assert_allclose(flatten(grads)[part], x, rtol=1e-9, atol=1e-9)
    assert like(y, np).shape == want["y"].shape


def test_records_with_ids_or_targets_out_of_range_never_write_outside_of_an_array():
    _, saved = ops.embedding(np.zeros((3, 2)), np.array([0, 1]))
    wrong = saved._replace(ids=np.array([0, 30]))
    assert KERNELS["embedding_backward"](np.ones((2, 2)), wrong) is NotImplemented
    _, saved = ops.cross_entropy(np.zeros((2, 3)), np.array([0, ops.IGNORE]))
    # Forward and backward that disagree about which target is ignored.
    assert KERNELS["cross_entropy_backward"](1.0, saved, ignore=-1) is NotImplemented


def test_a_key_that_is_none_is_left_to_the_op_and_every_case_here_is_taken():
    x = np.zeros((1, 2, 3))
    assert KERNELS["dropout"](x, np.array([1, 2]), rate=0.5) is NotImplemented
    assert KERNELS["attention"](x, x, x, key=np.array([1, 2]), rate=0.5) is NotImplemented
    assert KERNELS["fold_key"](np.array([1, 2]), 3) is NotImplemented
    for name in PAIRS:
        case = usual(name)
        assert isinstance(case, OpCase)
        assert KERNELS[name](*case.arrays, *case.extra, **case.settings) is not NotImplemented, name


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
    address = address_of(put_first, row, row)
    with pytest.raises(ValueError, match="too many"):
        called(address, np.ones(4, np.float32), np.zeros(1, np.float32))
