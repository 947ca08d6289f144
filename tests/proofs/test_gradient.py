"""The prover is proved: it agrees with derivatives known in closed form, and it notices the smallest mistake."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from compare import assert_close
from glassformer.dispatch import use_engine
from glassformer.proofs import check, prove_op_case
from glassformer.proofs.gradient import complex_step, complex_step_along, errors_by_name, relative_error, worst
from glassformer.tree import tree_map
from proof_cases import OP_CASES as CASES

CLOSE = 1e-9
"""The limit for what only central differences measure."""
WIDTH = 2e-2
"""The widest of the three central differences, relative to the size of the entry."""


def central_difference(function, arrays, index):
    """Return the same as `complex_step` from real values alone: to about ten digits."""
    moved = [None if x is None else np.array(x, dtype=np.float64) for x in arrays]
    x = moved[index]
    gradient = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        start = x[place]

        def shifted(step, place=place, start=start):
            x[place] = start + step
            return float(function(*moved))

        gradient[place] = extrapolated(shifted, WIDTH * max(1.0, abs(start)))
        x[place] = start
    return gradient


def central_difference_along(function, point, direction):
    """Return the same as `complex_step_along` from real values alone."""

    def shifted(step):
        return float(function(tree_map(lambda x, move: x + step * move, point, direction)))

    return extrapolated(shifted, WIDTH)


def extrapolated(function, width):
    """Return the slope at 0 by three central differences; what remains is of order width⁶.

    D(h) = (f(h) − f(−h)) / 2h = f′ + a·h² + b·h⁴ + …
    """
    row = [(function(h) - function(-h)) / (2 * h) for h in (width, width / 2, width / 4)]
    row = [(4 * fine - coarse) / 3 for coarse, fine in itertools.pairwise(row)]  # a·h² cancels
    return (16 * row[1] - row[0]) / 15  # b·h⁴ cancels


def curve(x, y):
    return np.sum(np.exp(x) * np.sin(y)) + np.sum(x[0] ** 3)


@pytest.mark.parametrize(("numeric", "limit"), [(complex_step, 1e-15), (central_difference, 1e-11)])
def test_the_numeric_gradient_equals_the_closed_form(rng, numeric, limit):
    x, y = rng.standard_normal((2, 3, 2))
    dx = np.exp(x) * np.sin(y)
    dx[0] += 3 * x[0] ** 2
    assert_close(numeric(curve, (x, y), 0), dx, limit)
    assert_close(numeric(curve, (x, y), 1), np.exp(x) * np.cos(y), limit)


@pytest.mark.parametrize("slope", [complex_step_along, central_difference_along])
def test_the_slope_along_a_direction_runs_through_a_whole_tree(rng, slope):
    point = {"a": [rng.standard_normal(3)], "b": rng.standard_normal(2)}
    direction = tree_map(lambda x: rng.standard_normal(x.shape), point)
    found = slope(lambda p: np.sum(p["a"][0] ** 2) + np.sum(np.exp(p["b"])), point, direction)
    expected = np.sum(2 * point["a"][0] * direction["a"][0]) + np.sum(np.exp(point["b"]) * direction["b"])
    assert_close(found, expected, 1e-11)


def test_the_numeric_gradient_leaves_its_inputs_alone(rng):
    x, y = rng.standard_normal((2, 2, 2))
    for array in (x, y):
        array.flags.writeable = False
    complex_step(curve, (x, y), 0)
    central_difference(curve, (x, y), 0)


def test_the_relative_error_is_that_of_the_worst_entry():
    assert relative_error(np.array([2.0, 1.0]), np.array([2.0, 1.5])) == 0.25
    assert relative_error(np.zeros(3), np.zeros(3)) == 0
    assert relative_error(np.zeros(0), np.zeros(0)) == 0
    assert relative_error(np.zeros(3), np.zeros((3, 1))) == np.inf
    assert np.isnan(relative_error(np.array([np.nan]), np.array([1.0])))


def test_an_error_that_is_not_a_number_is_the_worst():
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
    taken = case.backward.__kwdefaults__ or {}
    settings = {name: value for name, value in case.settings.items() if name in taken or name == "rate"}
    wrong = replace(case, backward=lambda dy, saved: planted(dy, saved, **settings))
    assert not prove_op_case(wrong).ok


@pytest.mark.parametrize("wrong", [lambda g: None, lambda g: g[..., None], lambda g: g * np.nan, lambda g: (g, g)])
def test_a_gradient_that_is_missing_misshapen_or_not_a_number_fails(wrong):
    case = next(case for case in CASES if case.name == "softmax")
    assert not prove_op_case(replace(case, backward=lambda dy, y: wrong(case.backward(dy, y)))).ok


def test_central_differences_prove_the_same_cases_to_nine_digits(monkeypatch):
    monkeypatch.setattr(check, "complex_step", central_difference)
    chosen = {"linear", "gelu, far out", "layer_norm, eps 1e-06", "attention, dropout", "cross_entropy, smoothing"}
    cases = [case for case in CASES if case.name in chosen]
    assert len(cases) == len(chosen)
    for case in cases:
        assert prove_op_case(case).error <= CLOSE, case.name


def test_errors_by_name_point_at_the_wrong_leaf(rng):
    point = {"w": rng.standard_normal((3, 2)), "b": rng.standard_normal(2)}
    grads = {"w": np.cos(point["w"]), "b": 2 * point["b"]}

    def function(p):
        return np.sum(np.sin(p["w"])) + np.sum(p["b"] ** 2)

    right = errors_by_name(function, point, grads, rng)
    assert right.keys() == {"w", "b", "everything"}
    assert worst(list(right.values())) < 1e-12
    wrong = errors_by_name(function, point, {**grads, "b": grads["b"] * (1 + 1e-9)}, rng)
    assert wrong["w"] < 1e-12 < wrong["b"]
    assert errors_by_name(function, point, {"w": grads["w"]}, rng) == {"b": np.inf}
    assert errors_by_name(function, point, {**grads, "b": np.zeros(3)}, rng) == {"b": np.inf}
