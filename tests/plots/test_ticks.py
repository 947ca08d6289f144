"""Ticks that never touch each other, and scales on which nothing is flattened."""

import numpy as np
import pytest

from boxes import cut_words, overlapping_ticks
from glassformer.interpret import similarity_by_distance
from glassformer.interpret.heads import attention_statistics
from glassformer.interpret.statistics import residual_statistics
from glassformer.ops import sinusoidal
from glassformer.plots import (
    LengthCurve,
    attention_grid,
    attention_heads,
    full_against_causal,
    head_positions,
    head_specialization,
    layer_curves,
    length_curves,
    loss_curve,
    position_heat_map,
    prediction_bars,
    prediction_table,
    similarity_curve,
)
from glassformer.plots.labels import text_width
from glassformer.plots.ticks import are_far_apart, number_text, spread_out

WORDS = ["The", "␣capital", "␣of", "␣France", "␣is", "月月", "a", "WWWW", "i", "unbelievable"]


def weights(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def statistics(rng, L, H, T):
    return attention_statistics([(weights(rng, L, H, T, T), np.tri(T, dtype=bool))])


def check(figure):
    assert overlapping_ticks(figure) == []
    assert cut_words(figure) == []


@pytest.mark.parametrize(("heads", "length"), [(1, 1), (4, 2), (9, 23), (4, 64)])
def test_maps_of_attention(rng, length, heads):
    labels = [WORDS[i % len(WORDS)] for i in range(length)]
    check(attention_heads(weights(rng, heads, length, length), labels))


@pytest.mark.parametrize(("queries", "keys"), [(20, 3), (10, 60)])
def test_maps_between_two_sequences(rng, queries, keys):
    check(attention_heads(weights(rng, 4, queries, keys), ["2001"] * queries, ["3."] * keys))


def test_a_low_grid_has_room_for_the_words_beside_its_colors(rng):
    figure = attention_grid(weights(rng, 2, 4, 11, 23))
    check(figure)
    assert figure.axes[1].get_ylabel().endswith(",\ncolor as √weight")


@pytest.mark.parametrize("shape", [(1, 1), (6, 12), (48, 25)])
def test_grids_and_scores_of_shallow_and_deep_models(rng, shape):
    check(attention_grid(weights(rng, *shape, 5, 5)))
    check(head_specialization(statistics(rng, *shape, 3)))


@pytest.mark.parametrize("length", [2, 17, 300])
def test_masks_and_places(rng, length):
    labels = [WORDS[i % len(WORDS)] for i in range(length)]
    check(full_against_causal(weights(rng, length, length), weights(rng, length, length), labels))
    check(head_positions(statistics(rng, 3 if length == 17 else 1, 4, length), labels))  # four panels side by side


@pytest.mark.parametrize("length", [2, 300])
def test_places_without_words(rng, length):
    check(head_positions(statistics(rng, 1, 4, length)))


@pytest.mark.parametrize(("layers", "factor"), [(2, 1000), (13, 1), (97, 1000), (97, 1)])
def test_layers(rng, layers, factor):
    residual = rng.standard_normal((layers, 4, 6))
    residual[layers // 2, 0, 0] *= factor
    check(layer_curves(residual_statistics(residual)))


@pytest.mark.parametrize("low", [1.0, 0.5, 0.02, 1e-5])
def test_losses(low):
    losses = np.geomspace(3, low, 200).tolist()
    check(loss_curve([{"step": i, "loss": loss, "val_loss": loss, "accuracy": 0.5} for i, loss in enumerate(losses)]))


def test_predictions_positions_and_lengths(rng):
    labels = [WORDS[i % len(WORDS)] for i in range(30)]
    check(prediction_table(weights(rng, 30, 8), labels, lambda i: WORDS[i]))
    check(prediction_bars(weights(rng, 10), lambda i: WORDS[i]))
    check(prediction_bars(np.full(3000, 1 / 3000)))
    check(position_heat_map(sinusoidal(np.arange(2048), 64)))
    check(similarity_curve(similarity_by_distance(sinusoidal(np.arange(64), 32))))
    lengths = [2**k for k in range(6, 17)]
    check(length_curves([LengthCurve("dense", lengths, [1e-9 * n**2 for n in lengths], [4.0 * n**2 for n in lengths])]))


def test_labels_without_room_are_left_out():
    assert spread_out([0, 1, 100, 200], ["first", "second", "third", "fourth"]) == [0, 2, 3]
    assert spread_out([], []) == []


def test_widths_are_those_of_the_letters():
    assert text_width("i", 10) < text_width("W", 10) < text_width("WW", 10)
    assert text_width("W", 20) == pytest.approx(2 * text_width("W", 10), rel=0.2)
    assert text_width("", 10) == 0


@pytest.mark.parametrize(
    ("values", "far"),
    [([1, 2, 3], False), ([1, 31], True), ([1, 1, 1, 11], True), ([0, 1000], False), ([], False), ([2, np.nan], False)],
)
def test_values_far_apart(values, far):
    assert are_far_apart(np.array(values)) == far


@pytest.mark.parametrize(
    ("value", "text"), [(0.02, "0.02"), (1.0, "1"), (1500, "1,500"), (-1e4, "−10,000"), (2e7, "2e+07")]
)
def test_numbers_on_axes_are_those_people_write(value, text):
    assert number_text(value) == text
