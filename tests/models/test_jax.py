"""One source, two libraries: under `jax.jit` a model gives NumPy's numbers, and `jax.grad` agrees with its backward.

Compiling takes almost all of the time here. Every case is traced. JAX's own gradient of every op is compared with its
backward in `tests/ops/test_jax.py`: compiled are a few models that put ops together in different ways, with as
few layers as show the matter. That a backward gives JAX the same numbers too is proved with all gradients, in
`tests/proofs`.
"""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import Decoder, DecoderConfig, use_engine
from glassformer.core.tree import flatten, tree_map
from glassformer.engines.jax import Jax
from glassformer.proofs.gradient import relative_error
from proof_cases import LAYER_CASES, MODEL_CASES
from proofs.depth import as_deep_as_needed

pytestmark = pytest.mark.usefixtures("numpy_engine")

LIMIT = 1e-11
CASES = {case.name: case for case in MODEL_CASES}
COMPILED = [
    "encoder (BERT), dropout",
    "decoder (attention), tiled, window, ALiBi",
    "decoder (GPT-2)",
    "decoder (Llama)",
    "encoder-decoder (T5)",
]


def array_settings(case):
    return {name: x for name, x in case.settings.items() if hasattr(x, "shape")}


def assert_same(actual, expected):
    """Compare two trees leaf by leaf, each relative to its largest entry."""
    actual, expected = flatten(actual), flatten(expected)
    assert actual.keys() == expected.keys()
    for name, x in expected.items():
        found = relative_error(actual[name], x)
        assert found <= LIMIT, f"{name}: error {found:.3g}"


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_equals_numpy_and_jax_grad(jax, name):
    case = as_deep_as_needed(CASES[name])

    def everything(params, batch, settings):
        """Value and JAX's own gradients, in one traced function."""
        traced = replace(case, batch=batch, settings={**case.settings, **settings})
        return jax.value_and_grad(traced.function)(params)

    value, theirs = jax.jit(everything)(case.params, case.batch, array_settings(case))
    assert relative_error(value, case.function(case.params)) <= LIMIT
    assert_same(theirs, case.gradients())


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_every_model_can_be_traced_and_float32_stays_float32(jax, case):
    case = as_deep_as_needed(case)
    params = tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, np.float32), case.params)
    settings = {
        name: x.astype(np.float32) if np.issubdtype(x.dtype, np.floating) else x
        for name, x in array_settings(case).items()
    }

    def everything(params, batch, settings):
        traced = replace(case, batch=batch, settings={**case.settings, **settings})
        y, saved = traced.forward(params)
        return y, saved, case.model.backward(params, saved, y)

    y, saved, grads = jax.eval_shape(everything, params, case.batch, settings)
    assert y.dtype == np.float32
    assert {n: x.shape for n, x in flatten(grads).items()} == {n: x.shape for n, x in flatten(case.params).items()}
    assert not [name for name, x in flatten([grads, saved]).items() if x.dtype == np.float64]


def test_without_jit_layers_answer_in_jax(jax):
    chosen = [case for case in LAYER_CASES if case.name in ("Linear, rows", "RMSNorm, rows", "Embedding, scaled")]
    assert len(chosen) == 3
    for case in chosen:
        moved = case.within(jax.numpy)
        assert isinstance(moved.forward()[0], jax.Array)
        assert all(isinstance(grad, jax.Array) for grad in flatten(moved.gradients()).values())
        assert_same(moved.gradients(), case.gradients())


def test_numpy_parameters_under_the_engine_jax_are_told_of_once(jax, caplog):
    model = Decoder(DecoderConfig(vocab=5, width=8, heads=2, layers=1, context=4))
    params, tokens = model.init(0), np.array([[1, 2]])
    with use_engine(Jax()):
        model.forward(tree_map(jax.numpy.asarray, params), tokens)
        assert not caplog.records
        kinds = [type(model.forward(params, tokens)[0]) for _ in range(2)]
    assert kinds == [np.ndarray, np.ndarray]
    assert [record.getMessage() for record in caplog.records] == [caplog.records[0].getMessage()]
    assert "gf.tree.tree_map(jax.numpy.asarray, params)" in caplog.text
