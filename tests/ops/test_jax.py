"""One source, two libraries: every op gives JAX the numbers it gives NumPy, and `jax.vjp` agrees with its backward.

That a backward gives JAX the same numbers too is proved with all gradients, in `tests/proofs`.
"""

from dataclasses import replace

import numpy as np
import pytest

from compare import assert_close
from glassformer.proofs import op_cases

pytestmark = pytest.mark.usefixtures("numpy_engine")

CASES = op_cases()
LIMIT = 1e-11
SENSITIVE = {
    *(f"{op}, bias per {part}" for op in ("attention", "attention_tiled") for part in ("head", "key")),
    "attention_tiled, stride, bias",
    "attention_tiled, everything",
}
"""Not optimized, XLA's program for JAX's own gradient of these may hold an infinity where a maximum starts at −inf."""


def cotangent(y):
    """Random numbers, zero where y is −inf and has no slope."""
    dy = np.random.default_rng(2).standard_normal(np.shape(y))
    return np.where(np.isfinite(y), dy, 0.0)


def assert_same_gradients(grads, expected):
    assert [g is None for g in grads] == [e is None for e in expected]
    for grad, other in zip(grads, expected, strict=True):
        if grad is not None:
            assert_close(grad, other, LIMIT)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jax_equals_numpy_and_vjp_equals_the_backward(jax, case):
    y, saved = case.forward()
    dy = cotangent(y)

    def everything(arrays, extra, settings, dy):
        """Value and JAX's own gradients, in one traced function."""
        traced = replace(case, arrays=arrays, extra=extra, settings={**case.settings, **settings})
        y, vjp, _ = jax.vjp(traced.forward, *arrays, has_aux=True)
        return y, vjp(dy)

    settings = {name: value for name, value in case.settings.items() if isinstance(value, np.ndarray)}
    options = {"xla_backend_optimization_level": 1} if case.name in SENSITIVE else {}
    jax_y, vjp_grads = jax.jit(everything, compiler_options=options)(case.arrays, case.extra, settings, dy)
    assert_close(jax_y, y, LIMIT)
    assert_same_gradients(case.gradients(dy, saved), vjp_grads)


def first_of_each_op():
    """One case per op; it is enough where only the library is in question."""
    return list({case.op: case for case in reversed(CASES)}.values())


@pytest.mark.parametrize("case", first_of_each_op(), ids=lambda case: case.name)
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
