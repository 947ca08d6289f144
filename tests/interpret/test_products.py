"""Attention before it is scaled, and the factor on it."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig
from glassformer.errors import ConfigError
from glassformer.interpret import products, score_scale, watch


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
