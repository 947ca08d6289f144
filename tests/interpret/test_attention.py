"""Attention maps show what the forward pass did, without padding; rollouts, against their definitions."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import Batch, Decoder, DecoderConfig, build, interpret
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import (
    Labels,
    attention_maps,
    attention_rollout,
    full_and_causal,
    products,
    put,
    score_scale,
    token_labels,
    value_weighted_attention,
    watch,
)
from glassformer.text.symbols import ByteTokenizer, CharTokenizer


def test_the_attention_of_a_decoder_is_what_the_record_holds(decoder):
    model, params, batch = decoder
    _, saved = model.predict(params, batch)
    maps = attention_maps(watch(model, params, batch))
    assert list(maps) == ["decoder"]
    for layer, block in enumerate(saved["blocks"]):
        assert_close(maps["decoder"].weights[layer], block["attention"].weights[0])


def test_padding_is_removed_wherever_it_stands(decoder):
    model, params, batch = decoder
    padded = attention_maps(watch(model, params, batch), example=1)["decoder"]
    alone = attention_maps(watch(model, params, Batch(batch.tokens[1:, :3])))["decoder"]
    assert padded.weights.shape == (2, 2, 3, 3)
    assert_close(padded.weights, alone.weights)
    assert padded.queries == alone.queries

    model, params, _ = decoder
    tokens, mask = np.array([[0, 0, 1, 2, 3]]), np.array([[False, False, True, True, True]])
    maps = attention_maps(watch(model, params, Batch(tokens, mask=mask)))["decoder"]
    assert maps.queries == ["1", "2", "3"]
    assert_close(maps.weights.sum(axis=-1), np.ones((2, 2, 3)))


def test_an_encoder_decoder_has_three_kinds_of_attention(encoder_decoder):
    model, params, batch = encoder_decoder
    run = watch(model, params, batch, labels=Labels(lambda i: f"t{i}", lambda i: f"s{i}"))
    for example in (0, 1):
        for maps in attention_maps(run, example).values():
            assert_close(maps.weights.sum(axis=-1), np.ones(maps.weights.shape[:-1]))
    shapes = {kind: one.weights.shape for kind, one in attention_maps(run, 1).items()}
    assert shapes == {"encoder": (1, 2, 2, 2), "decoder": (2, 2, 3, 3), "cross": (2, 2, 3, 2)}
    cross = attention_maps(run, 1)["cross"]
    assert cross.queries == [f"t{i}" for i in batch.tokens[1, :3]]
    assert cross.keys == [f"s{i}" for i in batch.source[1, :2]]
    assert attention_maps(run, 1)["decoder"].allowed.tolist() == np.tri(3, dtype=bool).tolist()
    assert cross.allowed.all()


def test_a_learned_vector_before_the_sequence_is_part_of_it(encoder):
    model, params, batch = encoder
    maps = attention_maps(watch(model, params, batch), example=1)["encoder"]
    assert maps.queries == ["[CLS]", *map(str, batch.tokens[1, :3])]
    assert maps.weights.shape == (2, 2, 4, 4)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
@pytest.mark.parametrize("tile", [None, 2])
def test_causal_attention_from_the_scores_is_the_models_own(decoder, positions, tile):
    _, _, batch = decoder
    model = build(decoder[0].config, positions=positions, attention_tile=tile)
    run = watch(model, model.init(0, np.float64), batch)
    full, causal = full_and_causal(run)
    assert_close(causal, attention_maps(run)["decoder"].weights)
    assert_close(full.sum(axis=-1), np.ones(full.shape[:-1]))
    assert (full > 0).all()


def test_windows_show_in_what_is_allowed_and_half_precision_is_widened(decoder):
    model = Decoder(decoder[0].config.replace(window=2))
    maps = attention_maps(watch(model, model.init(0), decoder[2]))["decoder"]
    assert maps.allowed.sum(axis=-1).tolist() == [1, 2, 2, 2, 2]
    assert (maps.weights[:, :, ~maps.allowed] == 0).all()
    model, _, batch = decoder
    assert attention_maps(watch(model, model.init(0, np.float16), batch))["decoder"].weights.dtype == np.float32


def test_jax_arrays_become_numpy_arrays(decoder, jax):
    from glassformer.core import tree

    model, params, batch = decoder
    weights = attention_maps(watch(model, tree.like(params, jax.numpy), batch))["decoder"].weights
    assert isinstance(weights, np.ndarray)
    assert_close(weights, attention_maps(watch(model, params, batch))["decoder"].weights, 1e-5)


def test_wrong_requests_are_refused(decoder, encoder_decoder):
    run = watch(*decoder)
    with pytest.raises(LengthError, match="no example 2 in a batch of 2"):
        attention_maps(run, 2)
    with pytest.raises(ConfigError, match="no attention of kind 'encoder'"):
        full_and_causal(run, "encoder")
    with pytest.raises(ConfigError, match="between two sequences"):
        full_and_causal(watch(*encoder_decoder), "cross")


@pytest.mark.parametrize("name", ["trace", "trace_of", "head_statistics"])
def test_a_retired_name_says_what_there_is_instead(name):
    with pytest.raises(AttributeError, match=r"use (attention_maps|head_scores)\("):
        getattr(interpret, name)


def test_labels_come_from_a_tokenizer():
    label = token_labels(CharTokenizer("ab", specials=("<bos>",)))
    assert [label(i) for i in range(3)] == ["<bos>", "a", "b"]
    # A byte that is only part of a character has no text of its own.
    assert token_labels(ByteTokenizer())(0xC3) == f"#{0xC3}"


def test_rows_sum_to_one_and_two_layers_are_a_product_of_mixtures(run, decoder):
    found = attention_rollout(run)
    total = found.own.sum(-1) + (0 if found.source is None else found.source.sum(-1))
    assert np.allclose(total, 1, rtol=1e-14)
    assert (found.source is not None) == (run.batch.source is not None)

    run = watch(*decoder)
    first, second = (run[f"blocks.{n}.attention.attend.weights"].mean(axis=1) for n in range(2))
    mixed = [0.5 * np.eye(5) + 0.5 * weights for weights in (first, second)]
    assert np.allclose(attention_rollout(run).own, mixed[1] @ mixed[0], rtol=1e-14)
    assert np.array_equal(attention_rollout(run, share=0).own[0], np.eye(5))


def test_a_source_is_reached_through_the_encoder_and_weighed_too(encoder_decoder):
    run = watch(*encoder_decoder)
    found = attention_rollout(run)
    assert found.source.shape == (2, 5, 4)
    assert np.all(found.source[1, :, 2:] == 0)  # padding is never looked at
    assert attention_rollout(run, "encoder").own.shape == (2, 4, 4)

    run = watch(*encoder_decoder)
    assert value_weighted_attention(run, "decoder.blocks.0.cross_attention").shape == (2, 2, 5, 4)


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


def test_what_is_not_there_is_refused(decoder):
    run = watch(*decoder)
    with pytest.raises(ConfigError, match="no stack 'encoder'"):
        attention_rollout(run, "encoder")
    with pytest.raises(ConfigError, match="from 0 to 1"):
        attention_rollout(run, share=2)


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
