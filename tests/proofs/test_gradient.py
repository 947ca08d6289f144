"""The prover is proved: it agrees with derivatives known in closed form, and it notices the smallest mistake."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from compare import assert_close
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import tree_map
from glassformer.proofs import OpCase, prove_case
from glassformer.proofs.gradient import (
    complex_step,
    error_along,
    mismatches,
    real_difference,
    relative_error,
    slope_along,
    worst,
)
from proof_cases import OP_CASES as CASES


def curve(x, y):
    return np.sum(np.exp(x) * np.sin(y)) + np.sum(x[0] ** 3)


@pytest.mark.parametrize(("numeric", "limit"), [(complex_step, 1e-15), (real_difference, 1e-7)])
def test_the_numeric_gradient_equals_the_closed_form(rng, numeric, limit):
    x, y = rng.standard_normal((2, 3, 2))
    x.flags.writeable = False
    dx = np.exp(x) * np.sin(y)
    dx[0] += 3 * x[0] ** 2
    assert_close(numeric(lambda x: curve(x, y), x), dx, limit)
    assert_close(numeric(lambda y: curve(x, y), y), np.exp(x) * np.cos(y), limit)


@pytest.mark.parametrize(("analytic", "limit"), [(None, 1e-14), (False, 1e-7)])
def test_the_slope_along_a_direction_runs_through_a_whole_tree(rng, analytic, limit):
    point = {"a": [rng.standard_normal(3)], "b": rng.standard_normal(2)}
    direction = tree_map(lambda x: rng.standard_normal(x.shape), point)
    found = slope_along(lambda p: np.sum(p["a"][0] ** 2) + np.sum(np.exp(p["b"])), point, direction, analytic=analytic)
    expected = np.sum(2 * point["a"][0] * direction["a"][0]) + np.sum(np.exp(point["b"]) * direction["b"])
    assert found.analytic is (analytic is None)
    assert_close(found.value, expected, limit)


def test_the_relative_error_is_that_of_the_worst_entry():
    assert relative_error(np.array([2.0, 1.0]), np.array([2.0, 1.5])) == 0.25
    assert relative_error(np.zeros(3), np.zeros(3)) == 0
    assert relative_error(np.zeros(0), np.zeros(0)) == 0
    assert relative_error(np.zeros(3), np.zeros((3, 1))) == np.inf
    assert np.isnan(relative_error(np.array([np.nan]), np.array([1.0])))

    assert worst([]) == 0
    assert worst([0.1, 0.3]) == 0.3
    assert worst([0.1, np.nan]) == np.inf


def has_a_gradient(case):
    """Whether some gradient is large enough to be wrong; NumPy tells, so that nothing is compiled to find the tests."""
    with use_engine("numpy"):
        y, saved = case.forward()
        dy = np.where(np.isfinite(y), 1.0, 0.0) * np.random.default_rng(0).standard_normal(np.shape(y))
        grads = case.gradients(dy, saved)
    return any(grad is not None and np.max(np.abs(grad), initial=0) > 0.1 for grad in grads)


@pytest.mark.parametrize("case", list(filter(has_a_gradient, CASES)), ids=lambda case: case.name)
def test_a_gradient_wrong_in_the_ninth_digit_fails(case):
    def planted(dy, saved, **settings):
        grads = replace(case, settings=settings).gradients(dy, saved)
        return tuple(None if grad is None else grad * (1 + 1e-9) for grad in grads)

    # The wrapper has no named settings, so it is given those that the true backward takes.
    taken = inspect.signature(case.backward).parameters
    settings = {name: value for name, value in case.settings.items() if name in taken}
    wrong = replace(case, backward=lambda dy, saved: planted(dy, saved, **settings))
    assert not prove_case(wrong).ok


@pytest.mark.parametrize("wrong", [lambda g: None, lambda g: g[..., None], lambda g: g * np.nan, lambda g: (g, g)])
def test_a_gradient_that_is_missing_misshapen_or_not_a_number_fails(wrong):
    case = next(case for case in CASES if case.name == "softmax")
    assert not prove_case(replace(case, backward=lambda dy, y: wrong(case.backward(dy, y)))).ok


def softsign(x):
    return x / (1 + abs(x)), x


def variance(x):
    return x * x.var(axis=-1, keepdims=True), x


def variance_backward(dy, x):
    centered = x - x.mean(axis=-1, keepdims=True)
    own = (dy * x).sum(axis=-1, keepdims=True) * 2 * centered / x.shape[-1]
    return dy * x.var(axis=-1, keepdims=True) + own


def quick_gelu(x):
    return x / (1 + np.exp(-1.702 * x)), x


def quick_gelu_backward(dy, x):
    with np.errstate(over="ignore"):
        share = 1 / (1 + np.exp(-1.702 * x))
    return dy * (share + 1.702 * x * share * (1 - share))


NOT_ANALYTIC = {
    "abs": (softsign, lambda dy, x: dy / (1 + abs(x)) ** 2, lambda dy, x: dy / (1 + abs(x))),
    "a variance": (variance, variance_backward, lambda dy, x: dy * x.var(axis=-1, keepdims=True)),
    "the real part": (lambda x: (x.real**2, x), lambda dy, x: 2 * x * dy, lambda dy, x: x * dy),
    "a cast": (lambda x: (np.sin(x.astype(float)), x), lambda dy, x: dy * np.cos(x), lambda dy, x: dy * np.sin(x)),
    "overflow of complex numbers": (quick_gelu, quick_gelu_backward, lambda dy, x: dy * (x > 0)),
}


@pytest.mark.parametrize(("forward", "right", "wrong"), NOT_ANALYTIC.values(), ids=NOT_ANALYTIC)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_forward_that_is_not_analytic_is_noticed_and_judged_by_real_differences(forward, right, wrong):
    x = np.array([[1.5, -2.0, 0.7, -500.0], [1e-3, -1e-8, 0.2, 3.0]])
    check = prove_case(OpCase("own", forward, right, (x,)))
    assert check.ok
    assert "not analytic" in check.reason
    assert not prove_case(OpCase("own", forward, wrong, (x,))).ok


def test_a_backward_is_judged_by_what_it_returns_in_double_precision():
    def backward(dy, y):
        dy *= y
        return dy

    def exponential(x):
        return np.exp(x), np.exp(x)

    check = prove_case(OpCase("exponential", exponential, backward, (np.array([0.5, -1.0]),)))
    assert check.ok
    assert "overwrites dy" in check.reason

    x = np.array([0.5, -1.0, 2.0], dtype=np.float32)
    assert prove_case(OpCase("sine", lambda x: (np.sin(x), x), lambda dy, x: dy * np.cos(x), (x,))).ok


def product(a, b):
    return a * b, (a, b)


REASONS = {
    "returns 1 of 2": lambda dy, saved: dy * saved[1],
    "no gradient for b": lambda dy, saved: (dy * saved[1], None),
    "the gradient of b is float32, and proofs need float64": lambda dy, saved: (
        dy * saved[1],
        (dy * saved[0]).astype(np.float32),
    ),
    r"b has the shape \(2, 2, 1\)": lambda dy, saved: (dy * saved[1], (dy * saved[0])[..., None]),
    "b.* 2 times": lambda dy, saved: (dy * saved[1], 2 * dy * saved[0]),
    "b.* mean over": lambda dy, saved: (dy * saved[1], dy * saved[0] + dy.mean(axis=-1, keepdims=True)),
    "b.* transpose": lambda dy, saved: (dy * saved[1], (dy * saved[0]).T),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_wrong_gradient_is_explained_by_argument_and_worst_entry(rng, reason):
    check = prove_case(OpCase("product", product, REASONS[reason], tuple(rng.standard_normal((2, 2, 2)))))
    assert not check.ok
    assert re.search(reason, check.reason), check.reason
    if "b.*" in reason:
        assert "db[" in check.reason
        assert "da[" not in check.reason


def test_a_wrong_leaf_of_a_layer_is_named():
    case = next(case for case in gf.proofs.layer_cases() if case.name == "Linear, rows")
    right = case.layer.backward
    wrong = replace(case)
    object.__setattr__(wrong, "layer", Doubled(case.layer, right))
    check = prove_case(wrong)
    assert not check.ok
    assert "params.b" in check.reason


class Doubled:
    """A layer whose gradient of b is doubled."""

    def __init__(self, layer, right):
        self.forward, self.right = layer.forward, right

    def backward(self, params, saved, dy):
        dx, grads = self.right(params, saved, dy)
        return dx, {**grads, "b": 2 * grads["b"]}


def test_slopes_along_random_directions_find_a_wrong_leaf(rng):
    point = {"w": rng.standard_normal((3, 2)), "b": rng.standard_normal(2)}
    grads = {"w": np.cos(point["w"]), "b": 2 * point["b"]}

    def function(p):
        return np.sum(np.sin(p["w"])) + np.sum(p["b"] ** 2)

    right, analytic = error_along(function, point, grads, rng)
    assert analytic
    assert right < 1e-12
    assert error_along(function, point, {**grads, "b": grads["b"] * (1 + 1e-9)}, rng)[0] > 1e-11
    facts = mismatches(point, {"b": np.zeros(3), "c": np.zeros(1)})
    assert facts.keys() == {"w", "b", "c"}
    assert "no gradient for w" in facts["w"]
