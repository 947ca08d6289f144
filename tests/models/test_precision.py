"""Types are kept: a float32 model computes in float32 throughout, and half precision stays finite."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.config import DecoderConfig
from glassformer.core.tree import flatten, named_leaves, tree_map
from glassformer.models.decoder import Decoder
from glassformer.models.model import Batch
from glassformer.proofs.model_cases import SIZES, TARGETS, TOKENS
from proof_cases import LAYER_CASES, MODEL_CASES

pytestmark = pytest.mark.usefixtures("numpy_engine")  # `engines/cpu/test_contract.py` compares types, too


def as_type(tree, dtype):
    """The same tree with every floating array in `dtype`."""
    return tree_map(lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x, tree)


def in_type(case, dtype):
    settings = {n: as_type(x, dtype) if isinstance(x, np.ndarray | tuple) else x for n, x in case.settings.items()}
    changed = {"params": as_type(case.params, dtype), "settings": settings}
    if hasattr(case, "inputs"):
        changed["inputs"] = as_type(dict(case.inputs), dtype)
    return replace(case, **changed)


def floating(tree):
    return {name: x for name, x in named_leaves(tree) if np.issubdtype(x.dtype, np.floating)}


@pytest.mark.parametrize("case", [*MODEL_CASES, *LAYER_CASES], ids=lambda case: case.name)
def test_float32_stays_float32_everywhere(case):
    narrow = in_type(case, np.float32)
    y, saved = narrow.forward()
    grads = narrow.gradients()
    assert y.dtype == np.float32
    assert narrow.function(narrow.point).dtype == np.float32
    wide = {n: x.dtype for n, x in floating({"saved": saved, "grads": grads}).items() if x.dtype != np.float32}
    assert not wide


@pytest.mark.parametrize("case", MODEL_CASES[::7], ids=lambda case: case.name)
def test_float32_gradients_are_close_to_float64(case):
    expected = flatten(case.gradients())
    for name, grad in flatten(in_type(case, np.float32).gradients()).items():
        np.testing.assert_allclose(grad, expected[name], rtol=2e-3, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("case", MODEL_CASES, ids=lambda case: case.name)
def test_half_precision_gives_a_finite_loss_and_finite_gradients(case):
    half = in_type(case, np.float16)
    y, _ = half.forward()
    assert y.dtype == np.float16
    assert np.isfinite(half.function(half.point))
    for name, grad in flatten(half.gradients()).items():
        assert grad.dtype == np.float16, name
        assert np.isfinite(grad).all(), name


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_init_draws_in_the_type_that_is_asked_for(dtype):
    model = Decoder(DecoderConfig(**SIZES))
    params = flatten(model.init(3, dtype))
    assert {x.dtype for x in params.values()} == {np.dtype(dtype)}


def test_the_same_seed_draws_the_same_numbers_and_a_fresh_model_is_as_surprised_as_chance():
    model = Decoder(DecoderConfig(**SIZES))
    first, again, other = (flatten(model.init(seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    table = "embedding.tokens.table"
    assert not np.array_equal(first[table], other[table])
    from_rng = flatten(model.init(np.random.default_rng(3)))
    assert all(np.array_equal(first[name], from_rng[name]) for name in first)

    sizes = {"vocab": 100, "width": 32, "heads": 4, "layers": 6, "context": 16}
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 100, (8, 16))
    model = Decoder(DecoderConfig(**sizes, init_std=0.02))
    loss = model.loss(model.init(), Batch(tokens, rng.integers(0, 100, (8, 16))))
    assert abs(loss - np.log(100)) < 0.05
    default = Decoder(DecoderConfig(**sizes))
    _, saved = default.forward(default.init(), tokens)
    spread = [record["output"].std() for record in saved["blocks"]]
    assert spread[-1] < 3 * spread[0]


def test_extreme_logits_stay_finite():
    model = Decoder(DecoderConfig(**SIZES, tied_head=False))
    params = model.init()
    params["head"]["w"] = params["head"]["w"] * np.float32(1e4)
    for block in params["blocks"]:
        block["attention"]["query"]["w"] = block["attention"]["query"]["w"] * np.float32(1e4)
    loss, grads = model.loss_and_grads(params, Batch(TOKENS, TARGETS))
    assert np.isfinite(loss)
    assert all(np.isfinite(grad).all() for grad in flatten(grads).values())
