"""Heads that were made to look at one kind of place are named, and their numbers are those worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import Batch, Encoder, EncoderConfig
from glassformer.core.errors import LengthError
from glassformer.interpret import detect_heads, head_scores, put, repeated_tokens, watch
from glassformer.interpret.heads import score_maps


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
    assert "encoder" not in last  # it has one layer


def test_heads_are_named_by_multiples_of_chance():
    scores = {"induction": np.array([[0.23, 0.1]]), "previous token": np.array([[0.23, 0.6]])}
    some = score_maps([np.full((1, 2, 1, 1), 1.0)], np.ones((1, 1, 1), dtype=bool))
    found = replace(some, scores=scores, chance={"induction": 0.016, "previous token": 0.12})
    assert [one[:3] for one in found.named()] == [("previous token", 0, 1), ("induction", 0, 0)]


FULL = np.ones((6, 6), dtype=bool)
CAUSAL = np.tri(6, dtype=bool)


def describe(*heads, allowed=FULL, is_cross=False):
    """Scores of one layer with these heads, each (T, S)."""
    return score_maps([np.stack(heads)[None]], allowed[None], is_cross=is_cross)


def uniform(allowed):
    return allowed / allowed.sum(axis=-1, keepdims=True)


def pointing(keys, S=6):
    """One-hot attention: query t looks at keys[t]."""
    return np.eye(S)[np.asarray(keys)]


@pytest.mark.parametrize("allowed", [FULL, CAUSAL])
def test_even_attention_scores_zero_and_is_broad(allowed):
    found = describe(uniform(allowed), allowed=allowed)
    assert found.statistics.specialization[0, 0] == pytest.approx(0, abs=1e-12)
    assert found.kinds == [["broad"]]


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ([0, 1, 2, 3, 4, 5], "self"),
        ([0, 0, 1, 2, 3, 4], "previous token"),
        ([0, 0, 0, 0, 0, 0], "first token"),
        ([0, 1, 0, 1, 1, 2], "selective"),
    ],
)
def test_causal_heads_that_look_at_one_key_score_one_and_get_their_name(keys, name):
    found = describe(pointing(keys), allowed=CAUSAL)
    assert found.statistics.specialization[0, 0] == pytest.approx(1)
    assert found.statistics.entropy[0, 0] == 0
    assert found.kinds == [[name]]


@pytest.mark.parametrize(("keys", "name"), [([1, 2, 3, 4, 5, 5], "next token"), ([5, 5, 5, 5, 5, 5], "last token")])
def test_heads_that_look_ahead_are_named_too(keys, name):
    assert describe(pointing(keys)).kinds == [[name]]


def test_the_score_is_one_minus_the_mean_relative_entropy():
    half = np.zeros((6, 6))
    half[:, :2] = 0.5
    assert describe(half).statistics.specialization[0, 0] == pytest.approx(1 - np.log(2) / np.log(6))


def test_causal_rows_are_measured_against_the_keys_they_may_see():
    weights = uniform(CAUSAL)
    weights[5] = np.eye(6)[5]
    # The first query has no choice; of the other five, four are even and one looks at a single key.
    assert describe(weights, allowed=CAUSAL).statistics.specialization[0, 0] == pytest.approx(1 / 5)


def test_distances_and_offsets_of_a_previous_token_head():
    found = describe(pointing([0, 0, 1, 2, 3, 4]), allowed=CAUSAL)
    assert found.statistics.distance[0, 0] == pytest.approx(5 / 6)
    profile = dict(zip(found.statistics.offsets.tolist(), found.statistics.profile[0, 0], strict=True))
    assert profile[-1] == pytest.approx(5 / 6)
    assert profile[0] == pytest.approx(1 / 6)
    assert found.scores["previous token"][0, 0] == 1


def test_shares_of_attention_sum_to_one(rng):
    weights = rng.dirichlet(np.ones(6), size=(2, 3, 6))
    found = score_maps(weights[:, None], FULL[None])
    np.testing.assert_allclose(found.statistics.profile.sum(axis=-1), 1)
    np.testing.assert_allclose(found.statistics.received.sum(axis=-1), 1)
    assert found.statistics.expected.sum() == pytest.approx(1)
    assert ((found.statistics.specialization >= 0) & (found.statistics.specialization <= 1)).all()


def test_without_preference_early_keys_of_a_causal_mask_receive_more():
    found = describe(uniform(CAUSAL), allowed=CAUSAL)
    np.testing.assert_allclose(found.statistics.received[0, 0], found.statistics.expected)
    assert (np.diff(found.statistics.expected) < 0).all()


def test_top_positions_are_those_with_most_attention():
    assert describe(pointing([3, 3, 1, 3, 1, 0])).top_positions(3)[0, 0].tolist() == [3, 1, 0]


def test_examples_of_different_lengths_are_averaged_by_query():
    short = np.pad(np.eye(2), (0, 2))
    long = uniform(np.ones((4, 4)))
    allowed = np.stack([np.pad(np.ones((2, 2), dtype=bool), (0, 2)), np.ones((4, 4), dtype=bool)])
    found = score_maps([np.stack([short, long])[:, None]], allowed)
    assert found.statistics.specialization[0, 0] == pytest.approx(2 / 6)
    np.testing.assert_allclose(found.statistics.received[0, 0], [(1 + 1) / 6, (1 + 1) / 6, 1 / 6, 1 / 6])


def test_a_single_token_leaves_no_choice():
    found = score_maps([np.ones((1, 2, 1, 1))], np.ones((1, 1, 1), dtype=bool))
    assert found.statistics.specialization.tolist() == [[0, 0]]
    assert found.kinds == [["no choice", "no choice"]]


def test_heads_across_sequences_are_named_by_position():
    diagonal = np.eye(6)[:4]
    found = describe(diagonal, np.eye(6)[[0] * 4], allowed=np.ones((4, 6), dtype=bool), is_cross=True)
    assert found.kinds == [["alignment", "first token"]]


def test_a_query_that_may_look_nowhere_is_left_out():
    allowed = FULL.copy()
    allowed[2] = False
    weights = uniform(FULL) * allowed
    found = describe(weights, allowed=allowed)
    assert found.statistics.specialization[0, 0] == pytest.approx(0, abs=1e-12)
    assert found.statistics.received[0, 0].sum() == pytest.approx(1)


def test_rows_name_every_head_counting_from_zero(decoder):
    rows = head_scores(watch(*decoder))["decoder"].rows()
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(len(row["top_positions"]) == 3 for row in rows)


def test_a_head_has_the_name_of_what_it_surely_is(decoder):
    model, params, _ = decoder
    weights = PLACES["induction"](np.arange(10)[:, None], np.arange(10)).astype(float)
    found = head_scores(run_with(model, params, weights, "blocks.1.attention"))["decoder"]
    assert ("positional", 1, 1) in [one[:3] for one in found.named()]
    assert found.kinds[1][1] == "induction"  # rather than positional, which says less


def test_padding_in_front_changes_nothing(decoder, rng):
    model, params, _ = decoder
    tokens = rng.integers(0, 7, (1, 6))
    padded = Batch(np.pad(tokens, ((0, 0), (3, 0))), mask=np.arange(9)[None] >= 3)
    weights = rng.dirichlet(np.ones(6), size=6)
    alone, behind = watch(model, params, Batch(tokens)), watch(model, params, padded)
    name = "blocks.0.attention.attend.weights"
    one = head_scores(alone.changed(put(name, weights)))["decoder"]
    two = head_scores(behind.changed(put(name, np.pad(weights, (3, 0)))))["decoder"]
    for what in ("specialization", "received", "profile", "distance"):
        np.testing.assert_allclose(
            getattr(one.statistics, what)[0], getattr(two.statistics, what)[0], atol=1e-12, err_msg=what
        )
    for kind, scores in one.scores.items():
        np.testing.assert_allclose(scores[0], two.scores[kind][0], atol=1e-12, err_msg=kind)
