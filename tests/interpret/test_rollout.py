"""Attention rollout, value-weighted attention and products before the scale, against their definitions."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig
from glassformer.core.errors import ConfigError
from glassformer.interpret import attention_rollout, products, put, score_scale, value_weighted_attention, watch


def test_rows_sum_to_one(run):
    found = attention_rollout(run)
    total = found.own.sum(-1) + (0 if found.source is None else found.source.sum(-1))
    assert np.allclose(total, 1, rtol=1e-14)
    assert (found.source is not None) == (run.batch.source is not None)


def test_two_layers_are_a_product_of_mixtures(decoder):
    run = watch(*decoder)
    first, second = (run[f"blocks.{n}.attention.attend.weights"].mean(axis=1) for n in range(2))
    mixed = [0.5 * np.eye(5) + 0.5 * weights for weights in (first, second)]
    assert np.allclose(attention_rollout(run).own, mixed[1] @ mixed[0], rtol=1e-14)
    assert np.array_equal(attention_rollout(run, share=0).own[0], np.eye(5))


def test_the_source_is_reached_through_the_encoder(encoder_decoder):
    run = watch(*encoder_decoder)
    found = attention_rollout(run)
    assert found.source.shape == (2, 5, 4)
    assert np.all(found.source[1, :, 2:] == 0)  # padding is never looked at
    assert attention_rollout(run, "encoder").own.shape == (2, 4, 4)


def test_value_weighted_attention_is_how_long_each_carried_vector_is(rng):
    model = Decoder(DecoderConfig(vocab=5, width=8, heads=4, kv_heads=2, layers=1, context=6, norm="rms"))
    run = watch(model, model.init(0, np.float64), Batch(rng.integers(0, 5, (1, 4))))
    found = value_weighted_attention(run, "blocks.0.attention")
    w = run.params["blocks"][0]["attention"]["output"]["w"][6:8]
    v = run["blocks.0.attention.attend.v"][0, 1, 1]
    weight = run["blocks.0.attention.attend.weights"][0, 3, 2, 1]
    assert found.shape == (1, 4, 4, 4)
    assert np.isclose(found[0, 3, 2, 1], weight * np.linalg.norm(v @ w), rtol=1e-12)
    silent = run.changed(put("blocks.0.attention.attend.v", 0.0, head=1))
    assert np.all(value_weighted_attention(silent, "blocks.0.attention")[:, 2:] == 0)


def test_cross_attention_is_weighed_too(encoder_decoder):
    run = watch(*encoder_decoder)
    assert value_weighted_attention(run, "decoder.blocks.0.cross_attention").shape == (2, 2, 5, 4)


def test_what_is_not_there_is_refused(decoder):
    run = watch(*decoder)
    with pytest.raises(ConfigError, match="no stack 'encoder'"):
        attention_rollout(run, "encoder")
    with pytest.raises(ConfigError, match="from 0 to 1"):
        attention_rollout(run, share=2)


# --- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 1}, {"positions": "rotary"}, {"scale_scores": False}])
def test_products_times_the_scale_are_the_scores(settings, rng):
    model = Decoder(DecoderConfig(vocab=7, width=8, heads=2, layers=2, context=12, **settings))
    run = watch(model, model.init(0, np.float64), Batch(rng.integers(0, 7, (2, 5))))
    scale = score_scale(run, "blocks.1.attention")
    assert scale == (1.0 if "scale_scores" in settings else 0.5)
    scores = products(run, "blocks.1.attention") * scale
    np.testing.assert_allclose(scores, run["blocks.1.attention.attend.scores"], rtol=1e-12, atol=1e-14)


def test_cross_attention_has_products_of_queries_and_the_source(encoder_decoder):
    run = watch(*encoder_decoder)
    assert products(run, "decoder.blocks.0.cross_attention").shape == (2, 2, 5, 4)
    np.testing.assert_allclose(
        products(run, "decoder.blocks.0.cross_attention") * score_scale(run, "decoder.blocks.0.cross_attention"),
        run["decoder.blocks.0.cross_attention.attend.scores"],
        rtol=1e-12,
    )


@pytest.mark.parametrize("ask", [products, score_scale])
def test_what_is_no_attention_is_refused(ask, decoder):
    with pytest.raises(ConfigError, match=r"there is no value 'blocks\.0\.feed_forward\.attend\.q'"):
        ask(watch(*decoder), "blocks.0.feed_forward")
