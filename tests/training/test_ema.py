"""The moving average against its closed form."""

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, like, unflatten
from glassformer.training import EMA

STEPS = 7


@pytest.fixture
def steps(rng):
    return [{"blocks": [{"w": rng.normal(size=(2, 3))}], "b": rng.normal(size=2)} for _ in range(STEPS + 1)]


def run(ema, steps):
    state = ema.init(steps[0])
    for params in steps[1:]:
        state = ema.update(state, params)
    return state


def test_the_average_is_a_mean_with_geometric_weights_on_numpy_and_jax(steps, jax):
    weights = 0.9 ** np.arange(STEPS)[::-1]
    want = sum(weight * params["b"] for weight, params in zip(weights, steps[1:], strict=True)) / weights.sum()
    np.testing.assert_allclose(run(EMA(0.9), steps)["average"]["b"], want, rtol=1e-13)

    ema = EMA(0.9)
    want = run(ema, steps)
    update = jax.jit(ema.update)
    state = ema.init(like(steps[0], jax.numpy))
    for params in steps[1:]:
        state = update(state, like(params, jax.numpy))
    for name, array in flatten(want).items():
        np.testing.assert_allclose(flatten(state)[name], array, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_average_is_held_in_float32_and_read_in_the_type_of_the_parameters(steps, dtype):
    steps = [{"b": params["b"].astype(dtype)} for params in steps]
    state = run(EMA(0.9), steps)
    assert state["average"]["b"].dtype == np.float32
    assert EMA(0.9).read(state, steps[0])["b"].dtype == dtype


def test_averaging_changes_nothing_it_was_given_and_a_decay_of_one_is_refused(steps):
    before = steps[0]["b"].copy()
    state = run(EMA(0.9), steps)
    np.testing.assert_array_equal(steps[0]["b"], before)
    again = EMA(0.9).update(unflatten(flatten(state)), steps[0])
    np.testing.assert_array_equal(again["average"]["b"], EMA(0.9).update(state, steps[0])["average"]["b"])

    with pytest.raises(ConfigError, match="decay is 1"):
        EMA(1.0)
