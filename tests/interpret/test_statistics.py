"""Statistics of the residual stream, and of heads made by hand, against numbers worked out by hand."""

import numpy as np
import pytest

from glassformer import Batch, Encoder, EncoderConfig
from glassformer.core.errors import ConfigError, LengthError, ShapeError
from glassformer.interpret import head_statistics, layer_statistics, trace, trace_each
from glassformer.interpret.statistics import attention_statistics, residual_statistics


def test_every_number_of_a_small_stream():
    first = np.array([[3.0, 4.0], [0.0, 0.0]])
    second = np.array([[6.0, 8.0], [1.0, -1.0]])
    embedding, block = residual_statistics(np.stack([first, second]))
    assert embedding.name == "embedding"
    assert embedding.mean == pytest.approx(7 / 4)
    assert embedding.rms == pytest.approx(2.5)
    assert embedding.zeros == 0.5
    assert embedding.norm == pytest.approx(2.5)
    assert embedding.change == 0
    assert block.name == "block 0"
    assert (block.minimum, block.maximum) == (-1, 8)
    assert block.std == pytest.approx(np.std([6, 8, 1, -1]))
    # The first token moved by its own length; the second started at zero, which has no length to compare with.
    assert block.change == pytest.approx(0.5)


def test_six_blocks_of_the_reference_size_have_seven_rows(rng):
    config = EncoderConfig(
        vocab=10, width=64, heads=4, layers=6, context=16, feed_forward=256, norm_position="post", head="none"
    )
    model = Encoder(config)
    rows = layer_statistics(trace(model, model.init(0), Batch(rng.integers(0, 10, 16))))
    assert [row.name for row in rows] == ["embedding", *(f"block {i}" for i in range(6))]
    # A post-norm block ends with a layer norm whose gain is still one and whose shift is zero.
    for row in rows[1:]:
        assert row.mean == pytest.approx(0, abs=1e-6)
        assert row.rms == pytest.approx(1, abs=1e-3)


def test_several_examples_are_described_together(encoder_decoder):
    model, params, batch = encoder_decoder
    traces = trace_each(model, params, batch)
    together = layer_statistics(traces, "decoder")[1]
    values = np.concatenate([one.residual["decoder"][1].ravel() for one in traces])
    assert together.mean == pytest.approx(values.mean())
    assert together.maximum == values.max()
    assert len(layer_statistics(traces, "encoder")) == 2


def test_streams_of_the_wrong_shape_are_refused():
    with pytest.raises(ShapeError, match="expected \\(layers \\+ 1, tokens, width\\)"):
        residual_statistics(np.ones((3, 4)))


# --- heads ------------------------------------------------------------------------------------------------------------


FULL = np.ones((6, 6), dtype=bool)
CAUSAL = np.tri(6, dtype=bool)


def describe(*heads, allowed=FULL, kind="encoder"):
    """Statistics of one layer with these heads, each (T, S)."""
    return attention_statistics([(np.stack(heads)[None], allowed)], kind=kind)


def uniform(allowed):
    return allowed / allowed.sum(axis=-1, keepdims=True)


def pointing(keys, S=6):
    """One-hot attention: query t looks at keys[t]."""
    return np.eye(S)[np.asarray(keys)]


@pytest.mark.parametrize("allowed", [FULL, CAUSAL])
def test_even_attention_scores_zero_and_is_broad(allowed):
    found = describe(uniform(allowed), allowed=allowed)
    assert found.score[0, 0] == pytest.approx(0, abs=1e-12)
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
    found = describe(pointing(keys), allowed=CAUSAL, kind="decoder")
    assert found.score[0, 0] == pytest.approx(1)
    assert found.entropy[0, 0] == 0
    assert found.kinds == [[name]]


@pytest.mark.parametrize(("keys", "name"), [([1, 2, 3, 4, 5, 5], "next token"), ([5, 5, 5, 5, 5, 5], "last token")])
def test_heads_that_look_ahead_are_named_too(keys, name):
    assert describe(pointing(keys)).kinds == [[name]]


def test_the_score_is_one_minus_the_mean_relative_entropy():
    half = np.zeros((6, 6))
    half[:, :2] = 0.5
    assert describe(half).score[0, 0] == pytest.approx(1 - np.log(2) / np.log(6))


def test_causal_rows_are_measured_against_the_keys_they_may_see():
    weights = uniform(CAUSAL)
    weights[5] = np.eye(6)[5]
    # The first query has no choice; of the other five, four are even and one looks at a single key.
    assert describe(weights, allowed=CAUSAL).score[0, 0] == pytest.approx(1 / 5)


def test_distances_and_offsets_of_a_previous_token_head():
    found = describe(pointing([0, 0, 1, 2, 3, 4]), allowed=CAUSAL)
    assert found.distance[0, 0] == pytest.approx(5 / 6)
    profile = dict(zip(found.offsets.tolist(), found.profile[0, 0], strict=True))
    assert profile[-1] == pytest.approx(5 / 6)
    assert profile[0] == pytest.approx(1 / 6)
    assert found.shares["previous token"][0, 0] == 1


def test_shares_of_attention_sum_to_one(rng):
    weights = rng.dirichlet(np.ones(6), size=(2, 3, 6))
    found = attention_statistics([(weights, FULL)])
    np.testing.assert_allclose(found.profile.sum(axis=-1), 1)
    np.testing.assert_allclose(found.received.sum(axis=-1), 1)
    assert found.expected.sum() == pytest.approx(1)
    assert ((found.score >= 0) & (found.score <= 1)).all()


def test_without_preference_early_keys_of_a_causal_mask_receive_more():
    found = describe(uniform(CAUSAL), allowed=CAUSAL)
    np.testing.assert_allclose(found.received[0, 0], found.expected)
    assert (np.diff(found.expected) < 0).all()


def test_top_positions_are_those_with_most_attention():
    assert describe(pointing([3, 3, 1, 3, 1, 0])).top_positions(3)[0, 0].tolist() == [3, 1, 0]


def test_examples_of_different_lengths_are_averaged_by_query():
    short = np.eye(2)[None, None]
    long = uniform(np.ones((4, 4)))[None, None]
    found = attention_statistics([(short, np.ones((2, 2), dtype=bool)), (long, np.ones((4, 4), dtype=bool))])
    assert found.score[0, 0] == pytest.approx(2 / 6)
    np.testing.assert_allclose(found.received[0, 0], [(1 + 1) / 6, (1 + 1) / 6, 1 / 6, 1 / 6])


def test_a_single_token_leaves_no_choice():
    found = attention_statistics([(np.ones((1, 2, 1, 1)), np.ones((1, 1), dtype=bool))])
    assert found.score.tolist() == [[0, 0]]
    assert found.kinds == [["no choice", "no choice"]]


def test_heads_across_sequences_are_named_by_position():
    diagonal = np.eye(6)[:4]
    found = describe(diagonal, np.eye(6)[[0] * 4], allowed=np.ones((4, 6), dtype=bool), kind="cross")
    assert found.kinds == [["same position", "first token"]]


def test_a_query_that_may_look_nowhere_is_left_out():
    allowed = FULL.copy()
    allowed[2] = False
    weights = uniform(FULL) * allowed
    found = describe(weights, allowed=allowed)
    assert found.score[0, 0] == pytest.approx(0, abs=1e-12)
    assert found.received[0, 0].sum() == pytest.approx(1)


def test_rows_name_every_head_counting_from_zero(decoder):
    model, params, batch = decoder
    rows = head_statistics(trace_each(model, params, batch), "decoder").rows()
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(len(row["top_positions"]) == 3 for row in rows)


def test_unknown_kinds_and_no_examples_are_refused(decoder):
    model, params, batch = decoder
    with pytest.raises(ConfigError, match="this decoder has no 'crossed' attention"):
        head_statistics(trace_each(model, params, batch), "crossed")
    with pytest.raises(LengthError, match="no example"):
        head_statistics([])
