"""Activation patching: exact effects equal single changed runs, and estimates are exact where the model is linear."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, register_activation, register_norm
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import Logit, Loss, patch_heads, patch_stream, patch_sublayers, take, watch
from glassformer.layers import Layer
from own_parts import forgotten

ARCHITECTURES = ["encoder", "decoder", "encoder_decoder"]
TARGET = Logit(1, against=0)


@pytest.fixture
def runs(request, rng):
    """Two runs on batches of the same shapes."""
    model, params, batch = request.getfixturevalue(request.param)
    first = batch._replace(tokens=batch.tokens.copy())
    first.tokens[:, 1] = (first.tokens[:, 1] + 1) % 5
    other = None if batch.source is None else (batch.source + 1) % 9
    return watch(model, params, batch), watch(model, params, first._replace(source=other))


every = pytest.mark.parametrize("runs", ARCHITECTURES, indirect=True)
decoder_only = pytest.mark.parametrize("runs", ["decoder"], indirect=True)


@every
def test_every_place_of_the_stream_equals_one_changed_run(runs):
    run, source = runs
    found = patch_stream(run, source, TARGET)
    assert len(found.rows) == (7 if "decoder.blocks.0" in run else 5)
    prefix = "decoder.blocks" if "decoder.blocks.0" in run else "blocks"
    for row, name in ((found.rows.index("block 0"), f"{prefix}.0"), (-2, f"{prefix}.1.feed_forward_norm.x")):
        for position in range(found.effect.shape[1]):
            alone = run.changed(take(name, source, position=position))
            expected = TARGET.value(alone) - TARGET.value(run)
            assert np.isclose(found.effect[row, position], expected, rtol=1e-9, atol=1e-13)


@every
def test_heads_and_sublayers_equal_changed_runs(runs):
    run, source = runs
    heads = patch_heads(run, source, Loss())
    for name, effects in zip(heads.rows, heads.effect, strict=True):
        for head, effect in enumerate(effects):
            alone = run.changed(take(f"{name}.output.x", source, head=head))
            assert np.isclose(effect, alone.loss - run.loss, rtol=1e-9, atol=1e-13)
    last = [n for n, name in enumerate(heads.rows) if ".1." in name]
    np.testing.assert_allclose(patch_heads(run, source, Loss(), layers=[1]).effect, heads.effect[last], atol=1e-13)
    layers = patch_sublayers(run, source, Loss())
    alone = run.changed(take(layers.rows[1], source, position=2))
    assert np.isclose(layers.effect[1, 2], alone.loss - run.loss, rtol=1e-9, atol=1e-13)


@decoder_only
def test_the_last_point_gives_the_answer_of_the_source(runs):
    run, source = runs
    found = patch_stream(run, source, TARGET)
    assert np.isclose(found.share[-1, -1], 1)
    chosen = patch_stream(run, source, TARGET, at=["block 0", "blocks.1"])
    assert chosen.rows == ["block 0", "block 1"]
    np.testing.assert_allclose(chosen.effect, found.effect[[2, -1]], atol=1e-13)
    assert np.allclose(found.share[-1, :-1], 0)


class Identity(Layer):
    """A norm that does nothing."""

    def __init__(self, width, eps):
        pass

    def specs(self):
        return {}

    def forward(self, params, x):
        return x, ()

    def backward(self, params, saved, dy):
        return dy, {}


def test_the_estimate_is_exact_on_a_linear_model(rng):
    with forgotten():
        register_activation("straight", lambda x: (x * 1.0, ()), lambda dy, saved: dy * 1.0)
        register_norm("nothing", Identity)
        config = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 6, "activation": "straight"}
        model = Decoder(DecoderConfig(**config, norm="nothing"))
        params = model.init(0, np.float64)
        for block in params["blocks"]:
            block["attention"]["query"]["w"][:] = 0  # all weights alike: attention is an average
        run, source = (watch(model, params, Batch(rng.integers(0, 7, (1, 5)))) for _ in range(2))
        for found in (patch_stream(run, source, TARGET), patch_heads(run, source, TARGET)):
            assert np.abs(found.effect).max() > 1e-3
            assert np.allclose(found.estimate, found.effect, rtol=1e-9, atol=1e-12)


@decoder_only
def test_the_estimate_is_the_slope_at_the_run(runs):
    run, source = runs
    near = {name: run[name] + 1e-6 * (source[name] - run[name]) for name in ("blocks.0",)}
    alone = run.changed(take("blocks.0", near, position=1))
    slope = (TARGET.value(alone) - TARGET.value(run)) / 1e-6
    found = patch_stream(run, source, TARGET)
    assert np.isclose(found.estimate[found.rows.index("block 0"), 1], slope, rtol=1e-4)
    assert patch_stream(run, source, TARGET, estimate=False).estimate is None


def test_prompts_of_different_length_are_refused_with_ways_out(decoder, encoder_decoder):
    model, params, batch = decoder
    run, short = watch(model, params, batch), watch(model, params, Batch(batch.tokens[:, :-1]))
    for call in (patch_stream, patch_sublayers, patch_heads):
        with pytest.raises(LengthError, match=r"as many tokens; or fill the shorter one up(.|\n)*by hand"):
            call(run, short, TARGET)
    model, params, batch = encoder_decoder
    run = watch(model, params, batch)
    short = watch(model, params, batch._replace(source=batch.source[:, :-1], source_mask=None))
    with pytest.raises(LengthError, match="the source of the run"):
        patch_heads(run, short, TARGET)
    with pytest.raises(ConfigError, match="different models"):
        patch_heads(run, watch(*decoder), TARGET)


@decoder_only
def test_what_is_not_there_is_refused(runs):
    run, source = runs
    with pytest.raises(ConfigError, match="no 'cross_attention'"):
        patch_sublayers(run, source, TARGET, "cross_attention")
    with pytest.raises(LengthError, match="there is no layer 2 with attention"):
        patch_heads(run, source, TARGET, layers=[0, 2])
    with pytest.raises(ConfigError, match="no point of the stream"):
        patch_stream(run, source, TARGET, at=["block 7"])
    with pytest.raises(ConfigError, match="both runs give the same answer"):
        _ = patch_heads(run, run, TARGET).share
