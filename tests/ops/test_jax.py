"""One source, two libraries: every op and its backward give JAX the numbers they give NumPy, and `jax.vjp` agrees.

That NumPy's gradients are exact in every case is proved by the complex step, in `tests/proofs`.
"""

from dataclasses import replace

import numpy as np
import pytest

from compare import assert_close
from glassformer.core.dispatch import use_engine
from glassformer.proofs.check import EXACT
from glassformer.proofs.gradient import relative_error, worst
from proof_cases import OP_CASES as CASES
from proof_cases import first_of_each_op

pytestmark = pytest.mark.usefixtures("numpy_engine")

LIMIT = 1e-11


def cotangent(y):
    """Random numbers, zero where y is −inf and has no slope."""
    dy = np.random.default_rng(2).standard_normal(np.shape(y))
    return np.where(np.isfinite(y), dy, 0.0)


def assert_same_gradients(grads, expected):
    assert [g is None for g in grads] == [e is None for e in expected]
    for grad, other in zip(grads, expected, strict=True):
        if grad is not None:
            assert_close(grad, other, LIMIT)


def compiled(jax, case, function, *more):
    """What a function says of a case whose arrays are JAX's, and of more, in one program."""

    def traced(arrays, extra, settings, *more):
        return function(replace(case, arrays=arrays, extra=extra, settings={**case.settings, **settings}), *more)

    settings = {name: value for name, value in case.settings.items() if isinstance(value, np.ndarray)}
    return jax.jit(traced)(case.arrays, case.extra, settings, *more)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jax_equals_numpy(jax, case):
    y, saved = case.forward()
    dy = cotangent(y)

    def both(traced, dy):
        y, saved = traced.forward()
        return y, traced.gradients(dy, saved)

    with use_engine("jax"):
        jax_y, jax_grads = compiled(jax, case, both, dy)
    assert_close(jax_y, y, EXACT)
    grads = case.gradients(dy, saved)
    assert [grad is None for grad in jax_grads] == [grad is None for grad in grads]
    errors = [relative_error(ours, grad) for ours, grad in zip(jax_grads, grads, strict=True) if grad is not None]
    assert worst(errors) <= EXACT == 1e-12


@pytest.mark.parametrize("case", first_of_each_op(), ids=lambda case: case.name)
def test_vjp_equals_the_backward(jax, case):
    y, saved = case.forward()
    dy = cotangent(y)

    def gradients(traced, dy):
        """JAX's own."""
        _, vjp, _ = jax.vjp(traced.forward, *traced.arrays, has_aux=True)
        return vjp(dy)

    assert_same_gradients(case.gradients(dy, saved), compiled(jax, case, gradients, dy))


@pytest.mark.parametrize("case", first_of_each_op()[::3], ids=lambda case: case.name)
def test_ops_run_on_jax_arrays_without_jit_and_answer_in_jax(jax, case):
    y, saved = case.forward()
    dy = cotangent(y)
    moved = case.within(jax.numpy)
    jax_y, jax_saved = moved.forward()
    jax_grads = moved.gradients(jax.numpy.asarray(dy), jax_saved)
    assert isinstance(jax_y, jax.Array)
    assert all(isinstance(grad, jax.Array) for grad in jax_grads if grad is not None)
    assert_close(jax_y, y, LIMIT)
    assert_same_gradients(jax_grads, case.gradients(dy, saved))
