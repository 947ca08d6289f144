"""Head detectors: heads that were made to look at one kind of place are named, and others are not."""

import numpy as np
import pytest

from glassformer import Batch, Encoder, EncoderConfig
from glassformer.core.errors import LengthError
from glassformer.interpret import HeadScores, detect_heads, head_scores, put, repeated_tokens, watch


def run_with(model, params, weights, name):
    """A run on repeated tokens in which head 1 of one layer has the given weights (T, S)."""
    vocab = min(model.config.vocab, getattr(model.config, "source_size", 99))
    tokens = repeated_tokens(vocab, 5, 3)
    source = tokens if "cross" in name else None
    run = watch(model, params, Batch(tokens, source=source))
    return run.changed(put(f"{name}.attend.weights", weights, head=1))


PLACES = {
    "previous token": lambda q, k: k == np.maximum(q - 1, 0),
    "first token": lambda q, k: k == 0 * q,
    "duplicate token": lambda q, k: k == q - 5,
    "induction": lambda q, k: k == q - 4,
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_head_of_a_kind_is_named(kind, decoder):
    model, params, _ = decoder
    weights = PLACES[kind](np.arange(10)[:, None], np.arange(10)).astype(float)
    found = head_scores(run_with(model, params, weights, "blocks.1.attention"))["decoder"]
    assert found.scores[kind][1, 1] == pytest.approx(1)
    assert (kind, 1, 1) in [one[:3] for one in found.named()]
    others = set(PLACES) - {kind}
    assert not [one for one in found.named() if one.kind in others and (one.layer, one.head) == (1, 1)]


def test_what_a_previous_token_head_does_with_tokens_that_came_before_does_not_count(decoder):
    model, params, _ = decoder
    query, key = np.arange(10)[:, None], np.arange(10)
    weights = np.where(query < 5, PLACES["previous token"](query, key), PLACES["duplicate token"](query, key))
    found = head_scores(run_with(model, params, weights.astype(float), "blocks.1.attention"))["decoder"]
    assert found.scores["previous token"][1, 1] == pytest.approx(1)
    assert found.scores["duplicate token"][1, 1] == pytest.approx(1)


def test_cross_attention_that_goes_along_is_named(encoder_decoder):
    model, params, _ = encoder_decoder
    found = head_scores(run_with(model, params, np.eye(10), "decoder.blocks.0.cross_attention"))
    assert set(found) == {"encoder", "decoder", "cross"}
    assert found["cross"].scores["alignment"][0, 1] == pytest.approx(1)
    assert ("alignment", 0, 1) in [one[:3] for one in found["cross"].named()]
    ahead = head_scores(run_with(model, params, np.eye(10, k=1), "decoder.blocks.0.cross_attention"))
    assert ahead["cross"].scores["alignment to the next"][0, 1] == pytest.approx(1)


def test_a_head_that_looks_at_places_is_positional(decoder, rng):
    model, params, _ = decoder
    fixed = np.eye(10)[[rng.integers(n + 1) for n in range(10)]]
    found = head_scores(run_with(model, params, fixed, "blocks.0.attention"))["decoder"]
    assert found.scores["positional"][0, 1] == pytest.approx(1)
    assert ("positional", 0, 1) in [one[:3] for one in found.named()]
    changing = np.stack([np.eye(10)[[rng.integers(n + 1) for n in range(10)]] for _ in range(3)])[:, None]
    found = head_scores(run_with(model, params, changing, "blocks.0.attention"))["decoder"]
    assert found.scores["positional"][0, 1] < 0.2


def test_what_is_padding_does_not_matter(decoder, rng):
    model, params, _ = decoder
    tokens, mask = rng.integers(0, 7, (3, 10)), np.arange(10) < np.array([[10], [7], [5]])
    others = np.where(mask, tokens, (tokens + 3) % 7)
    runs = [watch(model, params, Batch(each, mask=mask)) for each in (tokens, others)]
    one, other = (head_scores(run)["decoder"].scores for run in runs)
    for kind, scores in one.items():
        np.testing.assert_allclose(scores, other[kind], atol=1e-12, err_msg=kind)


def test_a_head_without_preference_scores_what_chance_does(decoder):
    model, params, _ = decoder
    weights = np.tril(np.ones((10, 10)))
    found = head_scores(run_with(model, params, weights / weights.sum(-1, keepdims=True), "blocks.0.attention"))
    found = found["decoder"]
    for kind in PLACES:
        assert found.scores[kind][0, 1] == pytest.approx(found.chance[kind])
    assert found.scores["positional"][0, 1] == pytest.approx(0, abs=1e-12)
    assert not [one for one in found.named() if (one.layer, one.head) == (0, 1)]


@pytest.mark.parametrize("name", ["encoder", "decoder", "encoder_decoder"])
def test_scores_are_shares(name, request):
    model, params, _ = request.getfixturevalue(name)
    for found in detect_heads(model, params, length=4).values():
        for scores in found.scores.values():
            assert scores.shape[1] == 2
            assert np.all((scores >= 0) & (scores <= 1 + 1e-12))


def test_a_learned_first_vector_is_counted(rng):
    model = Encoder(EncoderConfig(vocab=9, classes=2, pooling="cls", width=8, heads=2, layers=1, context=8))
    run = watch(model, model.init(0, np.float64), Batch(repeated_tokens(9, 4, 2)))
    weights = np.eye(9, k=-1)
    weights[0, 0] = 1
    seen = head_scores(run.changed(put("blocks.0.attention.attend.weights", weights, head=0)))
    assert seen["encoder"].scores["previous token"][0, 0] == pytest.approx(1)


def test_sequences_come_twice_and_repeat_nothing_else():
    tokens = repeated_tokens(20, 6, 4, seed=3)
    assert np.array_equal(tokens[:, :6], tokens[:, 6:])
    assert all(len(set(half)) == 6 for half in tokens[:, :6].tolist())
    assert repeated_tokens(3, 6).max() < 3
    assert np.array_equal(tokens, repeated_tokens(20, 6, 4, seed=3))


def test_what_does_not_fit_is_refused(decoder):
    model, params, _ = decoder
    with pytest.raises(LengthError, match="the model reads at most 12"):
        detect_heads(model, params, length=7)
    with pytest.raises(LengthError, match="at least two tokens"):
        repeated_tokens(5, 1)


def test_heads_of_one_layer_score_as_among_all(encoder_decoder):
    run = watch(*encoder_decoder)
    every, last = head_scores(run), head_scores(run, layers=[1])
    for kind in ("decoder", "cross"):
        assert last[kind].chance == every[kind].chance
        for name, scores in every[kind].scores.items():
            np.testing.assert_array_equal(last[kind].scores[name][0], scores[1])
        assert {one.layer for one in last[kind].named(threshold=0)} == {1}
    assert last["encoder"].scores == {}  # it has one layer
    assert "0 heads" in repr(last["encoder"])


def test_heads_are_named_by_multiples_of_chance():
    scores = {"induction": np.array([[0.23, 0.1]]), "previous token": np.array([[0.23, 0.6]])}
    found = HeadScores(scores, {"induction": 0.016, "previous token": 0.12})
    assert [one[:3] for one in found.named()] == [("previous token", 0, 1), ("induction", 0, 0)]
