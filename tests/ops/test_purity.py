"""Ops are functions in the mathematical sense: they write to nothing, keep nothing, and treat every example alike."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops, use_engine
from proof_cases import OP_CASES as CASES

EACH_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def read_only(x):
    """The same memory, strides included, that refuses to be written to."""
    view = x.view()
    view.flags.writeable = False
    return view


def run(case, seed=0):
    y, saved = case.forward()
    dy = np.where(np.isfinite(y), np.random.default_rng(seed).standard_normal(np.shape(y)), 0.0)
    before = dy.copy()
    grads = case.gradients(dy, saved)
    assert np.array_equal(dy, before)
    return y, saved, grads


@EACH_CASE
def test_inputs_are_never_written_to_and_give_the_same_bits_and_records_of_arrays(case):
    class Frozen:
        asarray = staticmethod(read_only)

    with use_engine("numpy"):
        run(case.within(Frozen))
    before = [None if x is None else x.copy() for x in case.arrays]
    run(case)  # by kernels, which would be compiled anew for arrays that cannot be written to
    for x, copy in zip(case.arrays, before, strict=True):
        assert x is None or np.array_equal(x, copy)

    first, second = run(case), run(case)
    np.testing.assert_array_equal(first[0], second[0])
    for a, b in zip(first[2], second[2], strict=True):
        np.testing.assert_array_equal(a, b)

    def only_arrays(part):
        if isinstance(part, tuple):
            return hasattr(part, "_fields") and all(map(only_arrays, part))
        return part is None or isinstance(part, np.ndarray | np.generic)

    assert only_arrays(case.forward()[1])


TABLE = np.random.default_rng(1).standard_normal((6, 4))
ANGLES = ops.rotary_angles(np.arange(5), 4)
CAUSAL_MASK = ops.causal_mask(5)


def swiglu(x):
    return ops.gated(x, np.flip(x, -1))


PER_EXAMPLE = {
    "linear": lambda x: ops.linear(x, TABLE[:4], TABLE[5]),
    "relu": ops.relu,
    "gelu": ops.gelu,
    "gelu_tanh": ops.gelu_tanh,
    "silu": ops.silu,
    "gated": swiglu,
    "layer_norm": lambda x: ops.layer_norm(x, TABLE[0], TABLE[1]),
    "rms_norm": lambda x: ops.rms_norm(x, TABLE[0]),
    "softmax": lambda x: ops.softmax(x),
    "log_softmax": lambda x: ops.log_softmax(x),
    "mean_pool": ops.mean_pool,
    "rotary": lambda x: ops.rotary(x, *ANGLES),
    "attention": lambda x: ops.attention(x, 2 * x, x + 1, mask=CAUSAL_MASK),
    "attention_tiled": lambda x: ops.attention_tiled(x, 2 * x, x + 1, pattern=ops.CAUSAL, tile=2),
    "embedding": lambda x: ops.embedding(TABLE, (np.abs(x) * 2).astype(int) % 6),
}


@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_a_batch_is_a_stack_of_examples(rng, name):
    op = PER_EXAMPLE[name]
    x = rng.standard_normal((2, 3, 5, 4))
    whole, _ = op(x)
    single = np.stack([np.stack([op(example)[0] for example in row]) for row in x])
    assert_close(whole, single, 1e-14)
    assert op(x[:0])[0].shape == (0, *whole.shape[1:])


@pytest.mark.parametrize("name", [name for name in PER_EXAMPLE if name not in ("gated", "embedding")])
def test_the_gradient_of_a_batch_is_a_stack_of_gradients(rng, name):
    settings = {"pattern": ops.CAUSAL, "tile": 2} if name == "attention_tiled" else {}

    def dx(x, dy):
        grads = getattr(ops, f"{name}_backward")(dy, PER_EXAMPLE[name](x)[1], **settings)
        return grads[0] if isinstance(grads, tuple) else grads

    x = rng.standard_normal((3, 5, 4))
    dy = rng.standard_normal(PER_EXAMPLE[name](x)[0].shape)
    assert_close(dx(x, dy), np.stack([dx(*example) for example in zip(x, dy, strict=True)]), 1e-14)
