"""Compositions of changes: what is frozen, taken, transformed, and what is refused."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, LengthError, ShapeError
from glassformer.interpret import (
    Cards,
    Logit,
    ablate_heads,
    at,
    batched_interventions,
    freeze,
    gradients,
    head_scores,
    mean,
    patch_path,
    patch_stream,
    put,
    resample,
    scale,
    take,
    token_rows,
    transform,
    watch,
    zero,
)

pytestmark = pytest.mark.usefixtures("numpy_engine")


@pytest.fixture
def run(decoder):
    return watch(*decoder)


@pytest.mark.parametrize("inputs", [put("tokens", 3, position=1), scale("embedding.tokens.table", 2.0)])
def test_a_frozen_value_stays_frozen_beside_a_change_of_the_inputs(run, inputs):
    base = run.changed(inputs, freeze("blocks.1.attention"))
    same = batched_interventions(base, [[]], lambda own, logits: logits.copy())[0]
    np.testing.assert_allclose(same, base.logits, rtol=1e-12)
    effect = base.changed(zero("blocks.0.attention.output.x", head=0)).loss - base.loss
    assert ablate_heads(base).loss[0] == pytest.approx(effect, rel=1e-9)


def test_a_changed_run_patched_with_itself_stays_as_it_is_and_paths_pass_through_layers(run, decoder):
    base = run.changed(zero("blocks.1.attention.output.x", head=0))
    for receiver in (at("logits"), at("blocks.1.attention.attend.q", head=0)):
        found = patch_path(base, base, at("blocks.0.attention.output.x", head=1), receiver, Logit(3))
        assert found.effect == pytest.approx(0, abs=1e-12)

    model, params, batch = decoder
    source = watch(model, params, batch._replace(tokens=(batch.tokens + 1) % 7))
    path = (run, source, at("blocks.0.attention.output.x", head=1), at("logits"), Logit(3))
    assert patch_path(*path).effect != pytest.approx(patch_path(*path, hold="attention").effect)
    with pytest.raises(ConfigError, match="hold"):
        patch_path(*path, hold="norms")


def test_values_of_a_run_are_read_only_and_a_function_of_one_is_a_change(decoder, run):
    model, params, batch = decoder
    run = watch(model, params, batch)
    before = run.changed(zero("blocks.1.feed_forward")).logits.copy()
    with pytest.raises(ValueError, match="read-only"):
        run["blocks.1.feed_forward_norm.x"][:] = 0
    params["final_norm"]["gamma"] *= 2
    np.testing.assert_array_equal(run.changed(zero("blocks.1.feed_forward")).logits, before)

    d = np.ones(8) / np.sqrt(8)

    def without(v, *_):
        return v - (v @ d)[..., None] * d

    changed = run.changed(transform("blocks.0", without, lambda dy, v: without(dy)))
    np.testing.assert_allclose(changed["blocks.0"] @ d, 0, atol=1e-12)
    assert Cards(changed).prove("embedding", (0, 1, 2)).difference < 1e-12
    derived = gradients(run.changed(transform("blocks.0", without)))
    np.testing.assert_allclose(derived["embedding"], gradients(changed)["embedding"], rtol=0, atol=1e-12)


SHARES = np.linspace(0.1, 0.9, 5)[:, None]


@pytest.mark.parametrize(
    ("function", "backward"),
    [
        (np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2)),
        (lambda x: np.clip(x, -0.3, 0.3), lambda dy, x: dy * (np.abs(x) < 0.3)),
        (lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0)),
        (lambda x: x * x.sum(axis=-1, keepdims=True),
         lambda dy, x: dy * x.sum(axis=-1, keepdims=True) + (dy * x).sum(axis=-1, keepdims=True)),
        (lambda x: x - (SHARES * x).sum(axis=1, keepdims=True), lambda dy, x: dy - SHARES * dy.sum(1, keepdims=True)),
    ],
)  # fmt: skip
def test_gradients_of_functions_are_derived(decoder, function, backward):
    run = watch(*decoder)
    derived, given = (gradients(run.changed(transform("blocks.0", function, own))) for own in (None, backward))
    for name in ("embedding", "blocks.0.feed_forward.up"):
        np.testing.assert_allclose(derived[name], given[name], rtol=0, atol=1e-12)
    some = run.changed(transform("blocks.0.attention.attend.weights", np.square, head=1, position=2))
    assert Cards(some).prove("embedding", (0, 1, 2)).difference < 1e-12


@pytest.mark.parametrize("function", [np.abs, np.floor, lambda x: x.astype(np.float32), lambda x: x.real**2])
def test_functions_that_are_not_analytic_ask_for_a_backward(decoder, function):
    with pytest.raises(ConfigError, match=r"changes blocks\.0 has no backward") as error:
        gradients(watch(*decoder).changed(transform("blocks.0", function)))
    assert "backward=lambda" in error.value.hint


def test_what_does_not_fit_is_refused(run, decoder):
    model, params, batch = decoder
    short = watch(model, params, gf.Batch(batch.tokens[:, :1]))
    with pytest.raises(ShapeError):
        run.changed(take("blocks.0", short))
    with pytest.raises(ShapeError):
        run.changed(resample("blocks.0", run, [0]))
    with pytest.raises(ConfigError, match="True"):
        run.changed(put("mask", 0.5))
    with pytest.raises(ConfigError, match="True"):
        run.changed(put("blocks.0.attention.attend.mask", 0.5))
    other = gf.Decoder(model.config.replace(activation="relu"))
    with pytest.raises(ConfigError, match="another model"):
        run.changed(take("blocks.0", watch(other, params, batch)))
    with pytest.raises(ConfigError, match="parameters"):
        patch_stream(run, watch(model, model.init(1, np.float64), batch), Logit(3))
    with pytest.raises(LengthError, match="head 7") as refused:
        run.changed(zero("blocks.0.attention.output.x", head=7))
    assert len(refused.traceback) < 8


def test_a_score_that_the_mask_hides_has_no_effect(run):
    change = put("blocks.0.attention.attend.scores", 9.0, position=0, key=2)
    assert run.changed(change).no_effect == (change,)


def test_padding_counts_in_no_mean_and_no_score(decoder, encoder_decoder):
    model, params, batch = decoder
    one = watch(model, params, gf.Batch(batch.tokens[1:, :3]))
    padded = watch(model, params, gf.Batch(batch.tokens[1:], mask=batch.mask[1:]))
    for kind, scores in head_scores(one)["decoder"].scores.items():
        np.testing.assert_allclose(head_scores(padded)["decoder"].scores[kind], scores, atol=1e-12)
    model, params, batch = encoder_decoder
    batch = batch._replace(tokens=batch.tokens[:, :4], targets=batch.targets[:, :4], mask=batch.mask[:, :4])
    run = watch(model, params, batch)
    real = run["encoder"][batch.source_mask]
    np.testing.assert_allclose(mean("encoder", run).value[0, 0], real.mean(axis=0))
    for name in ("encoder", "decoder.blocks.0.cross_attention.key.x"):
        np.testing.assert_array_equal(token_rows(run, name), real)


def test_a_learned_bias_has_heads_positions_and_keys(rng):
    model = gf.Decoder(gf.DecoderConfig(vocab=7, width=8, heads=2, layers=1, context=12, positions="relative"))
    run = watch(model, model.init(0, np.float64), gf.Batch(rng.integers(0, 7, (2, 4))))
    changed = run.changed(zero("relative", head=1))
    assert not changed["relative"][1].any()
    np.testing.assert_array_equal(changed["relative"][0], run["relative"][0])
