import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.tree import flatten, tree_map
from glassformer.models import Batch
from glassformer.training.curvature import gradient_noise_scale, hvp, per_example_gradients

SMALL = {"vocab": 11, "width": 8, "heads": 2, "layers": 1, "feed_forward": 16, "context": 8}
MODELS = {
    "decoder": gf.DecoderConfig(**SMALL, activation="silu", norm="rms", positions="rotary"),
    "encoder": gf.EncoderConfig(**SMALL, head="classes", classes=3),
    "encoder_decoder": gf.EncoderDecoderConfig(**SMALL, activation="gelu"),
}


def drawn(name, examples=4):
    """Return a model, float64 parameters and a batch without padding."""
    rng = np.random.default_rng(3)
    model = gf.build(MODELS[name])
    params = tree_map(lambda x: np.asarray(x, np.float64), model.init(0))
    tokens = rng.integers(0, 11, (examples, 5))
    targets = rng.integers(0, 3, examples if name == "encoder" else (examples, 5))
    source = rng.integers(0, 11, (examples, 6)) if name == "encoder_decoder" else None
    return model, params, Batch(tokens, targets, source=source)


def direction(params, seed):
    rng = np.random.default_rng(seed)
    return tree_map(lambda x: rng.standard_normal(x.shape), params)


def inner(a, b):
    a, b = flatten(a), flatten(b)
    return sum(float(np.sum(a[name] * b[name])) for name in a)


@pytest.mark.parametrize("name", MODELS)
def test_the_hessian_product_is_the_change_of_the_gradient_and_symmetric(name):
    model, params, batch = drawn(name)
    v, h = direction(params, 1), 1e-6
    ahead, behind = (model.loss_and_grads(tree_map(lambda x, d, t=t: x + t * d, params, v), batch)[1] for t in (h, -h))
    product = flatten(hvp(model, params, batch, v))
    for part, quotient in flatten(tree_map(lambda a, b: (a - b) / (2 * h), ahead, behind)).items():
        np.testing.assert_allclose(product[part], quotient, rtol=0, atol=2e-6, err_msg=part)

    v, w = direction(params, 1), direction(params, 2)
    there, back = inner(hvp(model, params, batch, v), w), inner(hvp(model, params, batch, w), v)
    assert there == pytest.approx(back, rel=1e-11)


def test_vectors_of_another_shape_and_parts_that_drop_the_imaginary_part_are_refused(monkeypatch):
    model, params, batch = drawn("decoder")
    with pytest.raises(ShapeError, match=r"embedding\.tokens\.table"):
        hvp(model, params, batch, {"embedding": params["embedding"]["tokens"]})

    backward = type(model).backward
    monkeypatch.setattr(type(model), "backward", lambda *given: tree_map(np.real, backward(*given)))
    with pytest.raises(ConfigError, match="real gradients"):
        hvp(model, params, batch, params)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_examples_average_to_those_of_the_batch(name):
    model, params, batch = drawn(name)
    losses, each = per_example_gradients(model, params, batch)
    loss, grads = model.loss_and_grads(params, batch)
    assert losses.shape == (4,)
    assert np.mean(losses) == pytest.approx(float(loss), rel=1e-13)
    for part, mean in flatten(grads).items():
        np.testing.assert_allclose(flatten(each)[part].mean(axis=0), mean, rtol=1e-10, atol=1e-13, err_msg=part)


def test_the_noise_scale_is_that_of_the_stacked_gradients_and_one_example_has_none():
    model, params, batch = drawn("decoder", examples=6)
    leaves = flatten(per_example_gradients(model, params, batch).grads).values()
    rows = np.concatenate([leaf.reshape(6, -1) for leaf in leaves], axis=1)
    trace = np.trace(np.cov(rows, rowvar=False))
    found = gradient_noise_scale(model, params, batch)
    assert found.trace == pytest.approx(trace, rel=1e-9)
    assert found.squared_norm == pytest.approx(np.sum(rows.mean(axis=0) ** 2) - trace / 6, rel=1e-9)
    assert found.scale == pytest.approx(found.trace / found.squared_norm)

    model, params, batch = drawn("decoder", examples=1)
    with pytest.raises(ShapeError, match="one example"):
        gradient_noise_scale(model, params, batch)
