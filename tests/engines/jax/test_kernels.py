"""Every kernel of the engine jax equals what it stands for, in half precision within rounding.

The kernels of a GPU are interpreted. Loops over blocks and generation have tests of their own beside this one.
"""

from dataclasses import dataclass, field
from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from glassformer import ops
from glassformer.core.tree import flatten
from glassformer.engines import find
from glassformer.engines.jax.stack import spreading
from glassformer.layers.cache import KeyValues
from glassformer.layers.embedding import Embedding, InputEmbedding
from glassformer.layers.position import RotaryPositions
from glassformer.models import build
from glassformer.ops import activation, position
from glassformer.ops.embedding import scatter_add
from one_gpu import assert_near, quickly

PATTERN = ops.Pattern(causal=True)
rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An op with arrays in float32, of which the ones named `narrow` are given in half precision."""

    op: Any
    arrays: tuple
    narrow: tuple[int, ...] = ()
    settings: dict = field(default_factory=dict)
    on_gpu: bool = False
    digits: float = 0.02


HEADS = (floats(2, 4, 16, 8), floats(2, 2, 16, 8), floats(2, 2, 16, 8))
MASK = rng.random((2, 1, 1, 16)) < 0.7
KEY = ops.new_key(3)

PAIRS = [
    Case(ops.linear, (floats(2, 3, 8), floats(8, 5), floats(5)), (0,)),
    Case(ops.linear, (floats(2, 3, 8), floats(8, 5)), (0, 1)),
    Case(ops.attention, HEADS, (0, 1, 2), {"pattern": PATTERN}),
    Case(ops.attention, (*HEADS, floats(4, 16, 16)), (0, 1, 2), {"mask": MASK, "scale": 0.2}),
    Case(ops.attention, HEADS, (0, 1, 2), {"key": KEY, "rate": 0.3}),
    Case(ops.attention, HEADS, (0, 1, 2), {"pattern": PATTERN}, on_gpu=True),
    Case(ops.attention_tiled, HEADS, (0, 1, 2), {"pattern": PATTERN, "tile": 8}, on_gpu=True),
    Case(ops.layer_norm, (floats(2, 16, 12), floats(12), floats(12)), (0,), on_gpu=True),
    Case(ops.layer_norm, (floats(32, 12), floats(12)), (0, 1), on_gpu=True),
    Case(ops.rms_norm, (floats(16, 12), floats(12)), (0,), on_gpu=True),
    Case(ops.gelu_tanh, (floats(4, 16),), (0,), on_gpu=True),
    Case(ops.cross_entropy, (floats(3, 20), np.array([4, ops.IGNORE, 19])), (0,), on_gpu=True),
]
FUNCTIONS = [
    Case(activation.logistic, (floats(5, 3) * 9,), digits=1e-6),
    Case(activation.normal_cdf, (floats(5, 3) * 4,), digits=1e-6),
    Case(scatter_add, (floats(2, 3, 4), rng.integers(0, 5, (2, 3))), settings={"shape": (5, 4)}, digits=1e-6),
    Case(ops.embedding, (floats(7, 4), rng.integers(0, 7, (2, 3))), (0,), {"scale": 1.5}),
]
UNKNOWN = {
    "relative_buckets": lambda places: position.relative_buckets(places, np.arange(40), bidirectional=True, buckets=8),
    "RotaryPositions.rotation": lambda places: RotaryPositions(8).rotation(places, 40),
    "InputEmbedding.sinusoids": lambda places: InputEmbedding(Embedding(9, 6), 40, "sinusoidal").sinusoids(places),
}
ELSEWHERE = {"Stack.run_blocks", "Stack.run_blocks_backward", "Stack.read_blocks", "Attention.attend_from"}
BLOCKS = {"Stack.run_block", "Stack.run_block_backward"}


def backward_of(op):
    return getattr(ops, f"{op.__name__}_backward")


def back_settings(case):
    kept = {"pattern", "rate", "scale", "tile"}
    return {name: value for name, value in case.settings.items() if name in kept}


def table():
    return {name: stand_in.function for name, stand_in in find("jax").table.items()}


def test_every_stand_in_has_a_case():
    paired = {case.op.__name__ for case in PAIRS}
    names = paired | {f"{name}_backward" for name in paired} | {case.op.__name__ for case in FUNCTIONS}
    assert set(table()) == names | set(UNKNOWN) | {"KeyValues.write"} | BLOCKS | ELSEWHERE


HALVES = "bfloat16", "float16"
# Where an op has several cases, they take turns.
TURNS = [
    (case, dtype)
    for op in {case.op: None for case in PAIRS}
    for cases in [[case for case in PAIRS if case.op is op]]
    for number, case in enumerate(cases)
    for dtype in ([HALVES[number % 2]] if len(cases) > 1 else HALVES)
]


@pytest.mark.parametrize(
    ("case", "dtype"), TURNS, ids=lambda x: x if isinstance(x, str) else f"{x.op.__name__}{' on a GPU' * x.on_gpu}"
)
def test_a_pair_equals_the_ops_as_written(request, case, dtype):
    jax = request.getfixturevalue("jax")
    if case.on_gpu:
        request.getfixturevalue("interpreted")
    given = [jax.numpy.asarray(x, dtype if i in case.narrow else None) for i, x in enumerate(case.arrays)]
    exact = [np.asarray(x, np.float32) if i in case.narrow else np.asarray(x) for i, x in enumerate(given)]
    kernels, back = table(), backward_of(case.op)
    want, record = unwrap(case.op)(*exact, **case.settings)
    dy = np.float32(2.0) if np.ndim(want) == 0 else floats(*want.shape)
    given_dy = jax.numpy.asarray(dy, dtype if np.ndim(want) else None)

    def both(arrays, dy):
        y, saved = kernels[case.op.__name__](*arrays, **case.settings)
        return y, saved, kernels[back.__name__](dy, saved, **back_settings(case))

    y, saved, grads = quickly(both, given, given_dy)
    assert_near(y, want, case.digits)
    expected = unwrap(back)(np.asarray(given_dy, np.float32), record, **back_settings(case))
    grads, expected = (x if isinstance(x, tuple) else (x,) for x in (grads, expected))
    for x, grad, exact_grad in zip(given, grads, expected, strict=False):
        assert (grad is None) == (exact_grad is None)
        if grad is not None:
            assert grad.dtype == x.dtype
            assert_near(grad, exact_grad, 2 * case.digits)
    # The record has the same names and shapes, whoever made it.
    names = [{name: tuple(x.shape) for name, x in flatten(tree).items()} for tree in (saved, record)]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", ["linear", "attention", "layer_norm", "gelu_tanh", "logistic"])
def test_kernels_for_one_precision_decline_others(jax, name):
    x = jax.numpy.asarray(floats(2, 4, 16, 8), "bfloat16" if name == "logistic" else "float32")
    arrays = {"linear": (x, x[0, 0].T), "attention": (x, x, x), "layer_norm": (x, x[0, 0, 0])}.get(name, (x,))
    assert table()[name](*arrays) is NotImplemented


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case.op.__name__)
def test_a_function_equals_the_one_as_written(jax, case):
    given = [jax.numpy.asarray(x, "bfloat16" if i in case.narrow else None) for i, x in enumerate(case.arrays)]
    exact = [np.asarray(x, np.float32) if i in case.narrow else np.asarray(x) for i, x in enumerate(given)]
    want = unwrap(case.op)(*exact, **case.settings)
    for function in (table()[case.op.__name__], case.op):
        y = function(*given, **case.settings)
        for have, expected in zip(*(x[:1] if isinstance(x, tuple) else (x,) for x in (y, want)), strict=True):
            assert isinstance(have, jax.Array)
            assert_near(have, expected, case.digits)


@pytest.mark.parametrize("name", UNKNOWN)
def test_positions_that_are_not_known_yet_are_looked_up(jax, name):
    places = np.array([3, 17, 39])
    want, found = UNKNOWN[name](places), quickly(UNKNOWN[name], places)
    if not isinstance(want, tuple):
        want, found = (want,), (found,)
    for x, y in zip(want, found, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-14, atol=1e-14)
    for x, y in zip(want, jax.tree.leaves(UNKNOWN[name](jax.numpy.asarray(places))), strict=True):
        np.testing.assert_array_equal(x, y)  # known ones go by the formula


def test_keys_are_written_alike_into_both_kinds_of_arrays(jax):
    caches = KeyValues(window=6), KeyValues(window=6)
    for new in (4, 1, 1, 1, 3):
        k, v = floats(2, 1, new, 3), floats(2, 1, new, 3)
        found = [cache.append(xp.asarray(k), xp.asarray(v)) for cache, xp in zip(caches, (np, jax.numpy), strict=True)]
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)
    assert isinstance(caches[1].k, jax.Array)


def test_a_block_says_where_its_arrays_go(jax):
    model = build("tiny-decoder", layers=1)
    params = jax.tree.map(jax.numpy.asarray, model.init(0))
    tokens = jax.numpy.arange(6).reshape(2, 3)
    said = []

    def noted(what):
        return lambda tree: (said.append((what, jax.tree.structure(tree))), tree)[1]

    def run(how):
        def both(params):
            with spreading(how):
                y, saved = model.forward(params, tokens)
                return y, model.backward(params, saved, y)

        return quickly(both, params)

    plain = run(None)
    found = run(SimpleNamespace(spread=noted("activations"), working=noted("weights"), resting=noted("gradients")))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [what for what, _ in said] == ["weights", "activations", "weights", "activations", "gradients"]
    assert said[0][1] == said[2][1] == said[4][1] == jax.tree.structure(params["blocks"][0])
