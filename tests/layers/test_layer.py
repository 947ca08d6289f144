"""What all layers have in common: frozen settings, parameters that are described before they are drawn."""

import dataclasses

import numpy as np
import pytest

from glassformer.core.tree import count, flatten
from glassformer.layers import (
    Attention,
    Block,
    Embedding,
    FeedForward,
    InputEmbedding,
    Layer,
    LayerNorm,
    Linear,
    RelativePositions,
    RMSNorm,
    Spec,
    Stack,
    TokenHead,
)

BLOCK = Block(Attention(8, 4), FeedForward(8, 8), LayerNorm(8))
LAYERS = [
    Linear(3, 4),
    LayerNorm(4),
    RMSNorm(4),
    Embedding(5, 4),
    InputEmbedding(Embedding(5, 4), 6, segments=2, norm=LayerNorm(4)),
    FeedForward(4, 8, gated=True),
    Attention(8, 4, kv_heads=2),
    BLOCK,
    Stack(BLOCK, 2, LayerNorm(8), RelativePositions(4)),
    TokenHead(4, 5, tied=False, bias=True, transform=LayerNorm(4)),
    RelativePositions(2),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_is_frozen_comparable_and_draws_the_same_from_the_same_seed(layer):
    name = dataclasses.fields(layer)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(layer, name, 1)
    assert dataclasses.replace(layer) == layer
    assert hash(dataclasses.replace(layer)) == hash(layer)
    first, again, other = (flatten(layer.init(seed, np.float64)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert count(first) == sum(int(np.prod(spec.shape)) for spec in flatten(layer.specs()).values())
    drawn = [name for name, spec in flatten(layer.specs()).items() if spec.std > 0]
    assert all(not np.array_equal(first[name], other[name]) for name in drawn)
    assert {x.dtype for x in flatten(layer.init()).values()} == {np.dtype(np.float32)}


def test_a_spec_draws_from_the_distribution_that_it_names():
    values = Spec((200, 100), std=0.5, mean=2.0).draw(np.random.default_rng(0), np.float64)
    assert values.shape == (200, 100)
    assert abs(values.mean() - 2) < 0.02
    assert abs(values.std() - 0.5) < 0.02


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_spec_without_spread_is_its_mean_and_takes_nothing_from_the_generator(dtype):
    rng, untouched = np.random.default_rng(0), np.random.default_rng(0)
    values = Spec((3,), mean=1.0).draw(rng, dtype)
    assert values.dtype == dtype
    assert (values == 1).all()
    assert rng.integers(1000) == untouched.integers(1000)


def test_a_generator_goes_on_where_it_stands_and_undescribed_parameters_cannot_be_drawn():
    rng = np.random.default_rng(4)
    first, second = Linear(2, 2).init(rng), Linear(2, 2).init(rng)
    np.testing.assert_array_equal(first["w"], Linear(2, 2).init(4)["w"])
    assert not np.array_equal(first["w"], second["w"])
    with pytest.raises(NotImplementedError):
        Layer().init()
