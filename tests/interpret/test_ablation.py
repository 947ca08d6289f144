"""Ablation and patching: every effect equals that of the one change alone."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, register_activation, register_norm
from glassformer.core.errors import ConfigError, LengthError
from glassformer.interpret import (
    Logit,
    Loss,
    ablate,
    ablate_heads,
    ablate_layers,
    ablate_neurons,
    batched_interventions,
    bytes_at_once,
    mean,
    patch_heads,
    patch_stream,
    patch_sublayers,
    resample,
    take,
    watch,
    zero,
)
from glassformer.layers import Layer
from own_parts import forgotten

ARCHITECTURES = {"encoder": 4, "decoder": 4, "encoder_decoder": 10}
TARGETS = (Logit(1, example=1), Logit(2, position=0, against=0))


decoder_only = pytest.mark.parametrize("run", ["decoder"], indirect=True)


def test_variants_of_a_batch_without_targets_need_a_measure(run):
    bare = watch(run.model, run.params, run.batch._replace(targets=None))
    variants = [[zero("logits")]]
    with pytest.raises(ConfigError, match=r"no targets to measure the loss with\n.*\n?.*pass a measure"):
        batched_interventions(bare, variants)
    assert np.array_equal(batched_interventions(bare, variants, lambda run, logits: logits[0])[0],
                          bare.changed(*variants[0]).logits[0])  # fmt: skip


@pytest.mark.parametrize("way", ["zero", "mean", "resample"])
def test_heads_silenced_together_equal_heads_silenced_alone(run, way):
    changes = {"zero": zero, "mean": lambda *a, **w: mean(a[0], run, **w)}
    changes["resample"] = lambda *a, **w: resample(a[0], run, [1, 0], **w)
    found = ablate_heads(run, way, targets=TARGETS)
    assert len(found.parts) == ARCHITECTURES[run.model.config.architecture.replace("-", "_")]
    for part, loss, logits in zip(found.parts, found.loss, found.logits, strict=True):
        alone = run.changed(changes[way](part.name, head=part.head))
        assert np.isclose(loss, alone.loss - run.loss, rtol=1e-9, atol=1e-13)
        assert np.allclose(logits, [t.value(alone) - t.value(run) for t in TARGETS], rtol=1e-9, atol=1e-13)


def test_layers_silenced_together_equal_layers_silenced_alone(run):
    found = ablate_layers(run)
    kinds = 3 if "decoder.blocks.0" in run else 2
    assert len(found.parts) == 2 * kinds + (2 if kinds == 3 else 0)
    for part, loss in zip(found.parts, found.loss, strict=True):
        assert np.isclose(loss, run.changed(zero(part.name)).loss - run.loss, rtol=1e-9, atol=1e-13)


@decoder_only
def test_neurons_silenced_together_equal_neurons_silenced_alone(run):
    found = ablate_neurons(run, 1, [0, 5, 31])
    for part, loss in zip(found.parts, found.loss, strict=True):
        alone = run.changed(zero("blocks.1.feed_forward.down.x", feature=part.neuron))
        assert np.isclose(loss, alone.loss - run.loss, rtol=1e-9, atol=1e-13)
    assert len(ablate_neurons(run, 0).parts) == 32


@decoder_only
def test_memory_is_stated_and_bounds_what_runs_at_once(run):
    steps = []
    one = bytes_at_once(run, 1)
    found = ablate_heads(run, memory=2 * one, progress=lambda *done: steps.append(done))
    assert bytes_at_once(run, 4, 2 * one) == 2 * one
    assert steps == [(2, 4), (4, 4)]
    assert bytes_at_once(run, 4, 1) == one
    assert np.allclose(found.loss, ablate_heads(run).loss, rtol=1e-12)


def test_padding_does_not_count_for_the_mean(run):
    for part in ablate_heads(run).parts:
        x = run[part.name]
        mask = run.batch.source_mask if part.name.startswith("encoder.") else run.batch.mask
        real = np.pad(mask, ((0, 0), (x.shape[1] - mask.shape[1], 0)), constant_values=True)
        assert np.allclose(mean(part.name, run).value[0, 0], x[real].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("run", ["encoder_decoder"], indirect=True)
def test_keys_of_the_source_are_those_of_its_tokens(run):
    name = "decoder.blocks.0.cross_attention.attend.k"
    keys = np.swapaxes(run[name], 1, 2)[run.batch.source_mask]  # (N, H, C)
    assert np.allclose(mean(name, run).value[0, :, 0], keys.mean(axis=0), rtol=1e-12)


@decoder_only
def test_what_all_examples_share_is_not_changed_for_one_and_rows_begin_with_what_matters_most(run):
    with pytest.raises(ConfigError, match="serves all examples at once"):
        batched_interventions(run, [[zero("embedding.positions", feature=n)] for n in range(3)])
    sizes = [abs(row["loss"]) for row in ablate_layers(run, kinds=["feed_forward"]).rows()]
    assert len(sizes) == 2
    assert sizes == sorted(sizes, reverse=True)


def test_without_targets_only_logits_are_measured(decoder):
    model, params, batch = decoder
    run = watch(model, params, batch._replace(targets=None))
    found = ablate_heads(run, targets=[Logit(1)])
    assert found.loss is None
    assert found.logits.shape == (4, 1)
    assert abs(found.rows()[0]["logits"][0]) == abs(found.logits).max()
    with pytest.raises(ConfigError, match="nothing to measure"):
        ablate_heads(run)


@decoder_only
def test_what_is_not_there_is_refused(run, decoder):
    with pytest.raises(ConfigError, match="no part to silence"):
        ablate(run, [])
    with pytest.raises(LengthError, match="there is no feed-forward layer 2"):
        ablate_neurons(run, 2)
    assert ablate_heads(run, layers=[1]).parts == [part for part in ablate_heads(run).parts if part.layer == 1]
    with pytest.raises(ConfigError, match="layers is '1'"):
        ablate_heads(run, layers="1")
    with pytest.raises(LengthError, match="has no feature 32"):
        ablate_neurons(run, 0, [32])
    with pytest.raises(ConfigError, match="did you mean 'resample'"):
        ablate_heads(run, "resampled")
    with pytest.raises(ConfigError, match="did you mean 'attention'"):
        ablate_layers(run, kinds=["atention"])
    with pytest.raises(LengthError, match="the order has 1 numbers"):
        ablate_heads(run, "resample", order=[0])
    with pytest.raises(ConfigError, match="from one run"):
        ablate_heads(run, "resample", data=[run])
    model, params, batch = decoder
    single = watch(model, params, batch._replace(tokens=batch.tokens[:1], targets=batch.targets[:1], mask=None))
    with pytest.raises(ConfigError, match="no other one to resample from"):
        ablate_heads(single, "resample")
    assert len(ablate_heads(single, "resample", data=run).parts) == 4


PATCHED = ["encoder", "decoder", "encoder_decoder"]
TARGET = Logit(1, against=0)


@pytest.fixture
def runs(request, rng):
    """Two runs on batches of the same shapes."""
    model, params, batch = request.getfixturevalue(request.param)
    first = batch._replace(tokens=batch.tokens.copy())
    first.tokens[:, 1] = (first.tokens[:, 1] + 1) % 5
    other = None if batch.source is None else (batch.source + 1) % 9
    return watch(model, params, batch), watch(model, params, first._replace(source=other))


every = pytest.mark.parametrize("runs", PATCHED, indirect=True)
written_alone = pytest.mark.parametrize("runs", ["decoder"], indirect=True)


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


@written_alone
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


@written_alone
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


@written_alone
def test_what_cannot_be_patched_is_refused(runs):
    run, source = runs
    with pytest.raises(ConfigError, match="no 'cross_attention'"):
        patch_sublayers(run, source, TARGET, "cross_attention")
    with pytest.raises(LengthError, match="there is no layer 2 with attention"):
        patch_heads(run, source, TARGET, layers=[0, 2])
    with pytest.raises(ConfigError, match="no point of the stream"):
        patch_stream(run, source, TARGET, at=["block 7"])
    with pytest.raises(ConfigError, match="both runs give the same answer"):
        _ = patch_heads(run, run, TARGET).share
