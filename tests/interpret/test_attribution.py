"""What a logit is made of: its parts sum to it, and tokens are salient by integrated gradients."""

import numpy as np
import pytest

import glassformer as gf
from glassformer import Batch, DecoderConfig, EncoderConfig, EncoderDecoderConfig, build, register_block
from glassformer.core.errors import ConfigError, LengthError, ShapeError, TokenError
from glassformer.core.tree import tree_map
from glassformer.interpret import (
    Logit,
    Loss,
    attribute,
    gradient_times_input,
    integrated_gradients,
    neuron_attribution,
    put,
    saliency,
    watch,
)
from own_parts import Gated, Parallel, forgotten

SIZES = {"width": 8, "heads": 2, "layers": 2, "context": 7, "vocab": 5, "feed_forward": 6}
MODELS = {
    "decoder": DecoderConfig(**SIZES),
    "post-norm": DecoderConfig(**SIZES, norm_position="post"),
    "post-norm and a last one": DecoderConfig(**SIZES, norm_position="post", final_norm=True),
    "llama": DecoderConfig(**SIZES, norm="rms", positions="rotary", gated=True, tied_head=False, kv_heads=1),
    "head bias": DecoderConfig(**SIZES, head_bias=True, tied_head=False, head_width=3),
    "scaled": DecoderConfig(**SIZES, head_scale=True, embedding_scale=True, positions="alibi", norm_bias=False),
    "rms post": DecoderConfig(**SIZES, norm="rms", norm_position="post", positions="relative"),
    "mean": EncoderConfig(**SIZES, classes=3, pooling="mean", positions="sinusoidal"),
    "cls": EncoderConfig(**SIZES, classes=3, pooling="cls", embedding_norm=True),
    "first": EncoderConfig(**SIZES, classes=3, pooling="first", segments=2, norm_position="post", embedding_norm=True),
    "gates": EncoderConfig(**SIZES, classes=3, norm="rms", gated=True, pooled_activation="gelu"),
    "gelu tokens": EncoderConfig(**SIZES, head="tokens", head_bias=True),
    "relu tokens": EncoderConfig(**SIZES, head="tokens", head_bias=True, activation="relu"),
    "encoder-decoder": EncoderDecoderConfig(**SIZES),
    "original": EncoderDecoderConfig(**SIZES, norm_position="post", positions="sinusoidal", tied_head=True),
}


def run_of(config, rng):
    model = build(config)
    # Biases and gains that are not zero and one, or nobody would miss them.
    params = tree_map(lambda x: x + 0.3 * rng.standard_normal(x.shape), model.init(0, np.float64))
    tokens = rng.integers(0, 5, (2, 6))
    mask = np.array([[True] * 6, [True] * 4 + [False] * 2])
    if config.architecture == "encoder-decoder":
        return watch(model, params, Batch(tokens, mask=mask, source=rng.integers(0, 5, (2, 4))))
    return watch(model, params, Batch(tokens, mask=mask))


@pytest.mark.parametrize("name", MODELS)
def test_parts_sum_to_logits_and_to_differences(name, rng):
    run = run_of(MODELS[name], rng)
    for target in (Logit(2, position=3, example=1), Logit(0, position=1, against=1)):
        found = attribute(run, target)
        total = sum(part.value for part in found.parts)
        assert abs(total - found.value) <= 1e-12 * max(1, abs(found.value))
        assert found.value == target.value(run)


def test_every_part_is_there_once(rng):
    run = run_of(MODELS["encoder-decoder"], rng)
    found = attribute(run, Logit(1))
    assert [part.kind for part in found.parts].count("head") == 8
    assert {part.name for part in found.parts if part.kind == "feed_forward"} == {
        "decoder.blocks.0.feed_forward",
        "decoder.blocks.1.feed_forward",
    }
    biases = [part.name for part in found.parts if part.kind == "bias"]
    assert "decoder.final_norm.beta" in biases
    assert "decoder.blocks.0.cross_attention.output.b" in biases
    assert not [name for name in biases if name.startswith("encoder.") or ("norm.b" in name and "final" not in name)]
    assert np.isclose(sum(found.by_kind().values()), found.value, rtol=1e-12)
    sizes = [abs(row["value"]) for row in found.rows()]
    assert sizes == sorted(sizes, reverse=True)


def test_a_head_adds_what_its_channels_say_and_neurons_sum_to_their_layer(rng):
    run = run_of(MODELS["decoder"], rng)
    found = attribute(run, Logit(2, position=3))
    w = run.params["blocks"][1]["attention"]["output"]["w"]
    said = run["blocks.1.attention.output.x"][0, 3, 4:] @ w[4:]
    direction = run.params["final_norm"]["gamma"] * run.params["embedding"]["tokens"]["table"][2]
    expected = (said - said.mean()) @ direction * run["final_norm.rstd"][0, 3, 0]
    part = next(p for p in found.parts if (p.kind, p.layer, p.head) == ("head", 1, 1))
    assert np.isclose(part.value, expected, rtol=1e-12)

    run = run_of(MODELS["llama"], rng)
    target = Logit(3, position=2, against=0)
    neurons = neuron_attribution(run, target)
    for part in attribute(run, target).parts:
        if part.kind == "feed_forward":
            assert neurons[part.name].shape == (6,)
            assert np.isclose(neurons[part.name].sum(), part.value, rtol=1e-12)


def test_what_does_not_fit_is_refused(rng):
    run = run_of(MODELS["decoder"], rng)
    with pytest.raises(TokenError, match="there is no logit 5"):
        attribute(run, Logit(5))
    with pytest.raises(TokenError, match="there is no logit 9"):
        attribute(run, Logit(0, against=9))
    with pytest.raises(LengthError, match="there is no position 6"):
        attribute(run, Logit(0, position=6))


@pytest.mark.parametrize("block", [Parallel, Gated])
def test_blocks_of_ones_own_are_taken_apart(block, rng):
    with forgotten():
        register_block("of_my_own", block)
        found = attribute(run_of(DecoderConfig(**SIZES, block="of_my_own"), rng), Logit(2))
        assert np.isclose(sum(part.value for part in found.parts), found.value, rtol=1e-12)
        assert found.by_kind().keys() == {"embedding", "head", "feed_forward", "bias"}


def test_parts_that_do_not_sum_are_not_returned(rng):
    # A value put in the stream came from no part.
    run = run_of(MODELS["decoder"], rng)
    with pytest.raises(ConfigError, match="the parts sum to"):
        attribute(run.changed(put("blocks.0", np.arange(8.0))), Logit(0))


TARGET = Logit(1, against=0)


decoder_only = pytest.mark.parametrize("run", ["decoder"], indirect=True)


def test_integrated_gradients_are_complete(run):
    start = 0.9 * run["embedding"] + 0.1 * np.roll(run["embedding"], 1, axis=1)
    found = integrated_gradients(run, TARGET, baseline=start)
    difference = TARGET.value(run) - TARGET.value(run.changed(put("embedding", start)))
    assert found.difference == pytest.approx(difference, rel=1e-12)
    assert abs(found.missing) <= 1e-6 * max(1, abs(difference))
    assert found.tokens.shape == (2, 5)


@decoder_only
def test_where_the_way_is_steep_it_is_cut_into_pieces(run, caplog):
    steps = []
    start = 0.3 * run["embedding"]
    found = integrated_gradients(run, TARGET, baseline=start, progress=lambda *done: steps.append(done))
    assert found.gradients > 8
    assert abs(found.missing) <= 1e-6 * max(1, abs(found.difference))
    assert steps[-1] == (100, 100)
    coarse = integrated_gradients(run, TARGET, most=8)
    assert abs(coarse.missing) > 1e-6
    assert "misses" in caplog.text


@decoder_only
def test_the_mean_is_a_place_to_start_from_and_gradients_are_not_sought_again(run):
    start = run["embedding"].mean(axis=1, keepdims=True)
    found, expected = (integrated_gradients(run, TARGET, baseline=own, tolerance=0.1) for own in (None, start))
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    found = gf.interpret.gradients(run, TARGET)
    for method in (saliency, gradient_times_input):
        np.testing.assert_array_equal(method(run, found), method(run, TARGET))


@pytest.mark.parametrize("run", ["encoder_decoder"], indirect=True)
def test_tokens_of_the_source_are_asked_too(run):
    start = 0.9 * run["source_embedding"]
    found = integrated_gradients(run, Loss(), name="source_embedding", baseline=start)
    assert found.tokens.shape == (2, 4)
    assert np.all(found.tokens[1, 2:] == 0)  # padding
    assert abs(found.missing) <= 1e-6
    assert saliency(run, TARGET, "source_embedding").shape == (2, 4)


def test_gradient_times_input_is_the_slope_along_the_input(run):
    found = gradient_times_input(run, TARGET)
    step = 1e-6
    up, down = (TARGET.value(run.changed(put("embedding", (1 + s) * run["embedding"]))) for s in (step, -step))
    assert found.shape == (2, 5)
    assert np.isclose(found.sum(), (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


@decoder_only
def test_only_tokens_that_can_be_seen_are_salient_and_others_refused(run):
    found = saliency(run, Logit(1, position=2, example=1))
    assert np.all(found[1, :3] > 0)
    assert np.all(found[1, 3:] == 0)
    assert np.all(found[0] == 0)

    with pytest.raises(ConfigError, match="did you mean"):
        integrated_gradients(run, TARGET, name="embeding")
    with pytest.raises(ConfigError, match=r"another value \(B, T, D\)"):
        integrated_gradients(run, TARGET, name="blocks.0.attention.attend.q")
    with pytest.raises(ShapeError, match="the baseline is"):
        integrated_gradients(run, TARGET, baseline=np.zeros(3))
