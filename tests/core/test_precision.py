"""Half precision: computed in float32, answered in the types that were given."""

import inspect

import numpy as np
import pytest

from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.ops.norm import LayerNormSaved
from glassformer.proofs import op_cases


@pytest.fixture(autouse=True)
def _as_written():
    with use_engine("numpy"):
        yield


@pytest.fixture
def x(rng):
    return rng.standard_normal((4, 3000)).astype(np.float16)


def test_sums_of_half_precision_keep_their_digits_and_full_precision_is_left_alone(rng):
    ones = np.ones((1, 3000), np.float16)
    y, _ = ops.linear(ones, ones.T)
    assert y.dtype == np.float16
    assert float(y[0, 0]) == 3000  # in 16 bits the sum would stop at 2048
    x = rng.standard_normal((2, 4))
    _, saved = ops.layer_norm(x, np.ones(4))
    assert isinstance(saved, LayerNormSaved)
    assert saved.mean.dtype == np.float64


def test_a_record_holds_what_was_given_and_gradients_have_the_types_of_their_arrays(x):
    gamma = np.ones(3000, np.float32)
    y, saved = ops.layer_norm(x, gamma)
    assert y.dtype == np.float16
    assert saved.x is x
    assert saved.gamma is gamma
    assert saved.mean.dtype == saved.rstd.dtype == np.float32

    y, saved = ops.softmax(x)
    assert saved is y
    assert y.dtype == np.float16

    gamma, beta = np.ones(3000, np.float32), np.zeros(3000, np.float16)
    y, saved = ops.layer_norm(x, gamma, beta)
    dx, dgamma, dbeta = ops.layer_norm_backward(np.ones_like(y), saved)
    assert (dx.dtype, dgamma.dtype, dbeta.dtype) == (np.float16, np.float32, np.float16)
    loss, saved = ops.cross_entropy(x, np.zeros(4, int))
    assert loss.dtype == saved.log_p.dtype == np.float32


def test_a_record_keeps_what_was_given_by_the_names_of_arguments_and_results(x):
    x = np.ones((3, 1), np.float16)
    _, saved = ops.attention(x, x[:1], x[:1])
    assert saved.weights.dtype == np.float16  # one number in a row, but no statistic
    assert ops.layer_norm(x, x[0])[1].mean.dtype == np.float32

    for case in op_cases():
        y, saved = case.forward()
        given = inspect.signature(case.op).bind(*case.arrays, *case.extra, **case.settings).arguments | {"y": y}
        for name in getattr(saved, "_fields", ()):
            if name in given and name not in ("cos", "sin"):  # angles are brought to the type of x
                assert getattr(saved, name) is given[name], f"{case.name}: {name}"

    assert ops.gelu(x)[1] is x
    assert ops.relu(x)[1] is x


def test_the_result_is_that_of_float32_rounded(x):
    wide, _ = ops.gelu(x.astype(np.float32))
    np.testing.assert_array_equal(ops.gelu(x)[0], wide.astype(np.float16))
