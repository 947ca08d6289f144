"""A model: how its batch is cut, what its loss is, and that every setting and preset arrives where it belongs."""

import math

import numpy as np
import pytest

import glassformer as gf
from compare import assert_close
from glassformer import ops
from glassformer.config import DecoderConfig
from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, tree_map
from glassformer.models import PRESETS, preset
from glassformer.models.building import build_attention
from glassformer.models.decoder import Decoder
from glassformer.models.model import Batch, as_key
from glassformer.proofs.case import scattered

TOKENS = np.array([[1, 4, 1, 0, 7], [1, 1, 8, 3, 3]])
BATCH = Batch(TOKENS, np.roll(TOKENS, -1, axis=-1))


@pytest.fixture(scope="module")
def model():
    return Decoder(DecoderConfig(vocab=9, width=8, heads=2, layers=1, context=6, dropout=0.2))


@pytest.fixture(scope="module")
def params(model):
    return scattered(model, np.random.default_rng(0))


def test_a_batch_is_cut_like_any_other_tree_and_the_loss_is_the_mean_surprise(model, params):
    batch = Batch(np.zeros((2, 3), int), np.ones((2, 3), int))
    assert batch.mask is batch.source is batch.source_mask is batch.segments is None
    assert list(flatten(batch)) == ["tokens", "targets"]

    batch = Batch(np.arange(6).reshape(2, 3), mask=np.ones((2, 3), bool))
    first = tree_map(lambda x: x[:1], batch)
    assert isinstance(first, Batch)
    np.testing.assert_array_equal(first.tokens, [[0, 1, 2]])
    assert first.mask.shape == (1, 3)
    assert first.targets is None

    logits, _ = model.forward(params, TOKENS)
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    chosen = np.take_along_axis(chances, BATCH.targets[..., None], axis=-1)
    assert_close(model.loss(params, BATCH), -np.log(chosen).mean())


@pytest.mark.parametrize(
    "settings", [{}, {"smoothing": 0.1}, {"key": 3}, {"class_weights": np.arange(1.0, 10.0)}], ids=str
)
def test_the_loss_alone_is_the_loss_beside_its_gradients(model, params, settings):
    settings = {name: as_key(value) if name == "key" else value for name, value in settings.items()}
    assert_close(model.loss(params, BATCH, **settings), model.loss_and_grads(params, BATCH, **settings)[0])


def test_a_seed_is_as_good_as_a_key_and_outputs_that_add_up_start_smaller_the_deeper_the_stack(model, params):
    (loss, grads), (same, scaled) = (model.loss_and_grads(params, BATCH, dloss=size) for size in (1.0, 1024.0))
    assert_close(same, loss)
    for name, grad in flatten(grads).items():
        assert_close(flatten(scaled)[name], 1024 * grad)

    np.testing.assert_array_equal(as_key(5), ops.new_key(5))
    np.testing.assert_array_equal(as_key(np.int64(5)), ops.new_key(5))
    key = ops.new_key(5)
    assert as_key(key) is key
    assert as_key(None) is None

    for depth in (1, 3):
        assert build_attention(config(), depth=depth).output_scale == pytest.approx(1 / math.sqrt(2 * depth))
    assert build_attention(config(norm_position="post"), depth=3).output_scale == 1


SIZES = {"vocab": 9, "width": 8, "heads": 4, "layers": 3, "context": 6}


def config(**settings):
    return DecoderConfig(**SIZES, **settings)


def test_every_preset_can_be_built_and_changed_and_unknown_ones_are_refused():
    for name in PRESETS:
        model = gf.build(name)
        assert model.config == preset(name)
        assert model.config.architecture in {"encoder", "decoder", "encoder-decoder"}
    changed = preset("gpt2", layers=2, width=64, heads=4)
    assert (changed.layers, changed.width, changed.heads) == (2, 64, 4)
    assert preset("gpt2").layers == 12

    with pytest.raises(ConfigError, match="3 is no model"):
        gf.build(3)
    with pytest.raises(ConfigError, match="there is no preset 'gpt-2'") as caught:
        preset("gpt-2")
    assert "gpt2" in caught.value.hint
