"""Similarity of positional encodings and Fourier components, against closed forms."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import Decoder
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.tree import flatten
from glassformer.interpret import (
    MARKED_DISTANCES,
    position_table,
    similarity_by_distance,
    similarity_matrix,
    watch,
    without_positions,
)
from glassformer.interpret.embeddings import fourier, fourier_basis
from glassformer.ops import sinusoidal


def test_sinusoids_are_alike_by_distance_alone():
    width, length = 32, 40
    found = similarity_by_distance(sinusoidal(np.arange(length), width))
    frequency = 10000.0 ** (-np.arange(0, width, 2) / width)
    # sin a sin b + cos a cos b = cos(a − b), averaged over the frequencies.
    expected = np.cos(np.arange(length)[:, None] * frequency).mean(axis=-1)
    assert_close(found.mean, expected)
    assert_close(found.low, expected)
    assert_close(found.high, expected)
    assert list(found.at()) == [1, 5, 10, 25]
    assert found.at()[1] > found.at()[5]


def test_distances_ranges_and_zero_vectors_are_shown_as_far_as_they_go(rng):
    assert list(similarity_by_distance(sinusoidal(np.arange(8), 4)).at(MARKED_DISTANCES)) == [1, 5]

    table = rng.standard_normal((6, 4))
    found = similarity_by_distance(table)
    cosines = similarity_matrix(table)
    assert found.mean[0] == pytest.approx(1)
    assert found.mean[5] == pytest.approx(cosines[0, 5])
    assert (found.low <= found.mean + 1e-12).all()
    assert (found.mean <= found.high + 1e-12).all()

    assert similarity_matrix(np.array([[0.0, 0.0], [1.0, 0.0]])).tolist() == [[0, 0], [0, 1]]

    assert similarity_by_distance(np.ones((1, 3))).mean.tolist() == pytest.approx([1])


def test_tables_come_from_the_model_and_others_are_refused(encoder, decoder, encoder_decoder):
    model, params, _ = encoder
    assert_close(position_table(model, params), sinusoidal(np.arange(12), 8))
    model, params, _ = decoder
    assert position_table(model, params) is params["embedding"]["positions"]["table"]
    model, params, _ = encoder_decoder
    assert_close(position_table(model, params, stack="encoder"), params["source_embedding"]["positions"]["table"])
    assert_close(position_table(model, params, stack="decoder"), params["embedding"]["positions"]["table"])
    rotary = Decoder(decoder[0].config.replace(positions="rotary"))
    assert position_table(rotary, rotary.init(0)) is None

    with pytest.raises(ShapeError, match="shape \\(N, D\\), got \\(3,\\)"):
        similarity_by_distance(np.ones(3))
    with pytest.raises(ConfigError, match="no stack 'middle'"):
        position_table(decoder[0], decoder[1], stack="middle")


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", "relative"])
def test_a_model_that_is_told_of_no_positions(decoder, positions):
    model = Decoder(decoder[0].config.replace(positions=positions))
    run = without_positions(watch(model, model.init(0, np.float64), decoder[2]))
    bare = Decoder(decoder[0].config.replace(positions="none"))
    np.testing.assert_array_equal(run.logits, watch(bare, run.params, decoder[2]).logits)
    np.testing.assert_allclose(run.logits, bare.predict(run.params, decoder[2])[0], rtol=1e-10, atol=1e-13)
    assert set(flatten(run.params)) == set(flatten(bare.specs()))
    with pytest.raises(ConfigError, match="knows no positions"):
        without_positions(run)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_the_basis_is_orthonormal(n):
    np.testing.assert_allclose(fourier_basis(n) @ fourier_basis(n).T, np.eye(n), atol=1e-14)


@pytest.mark.parametrize("n", [7, 8])
def test_shares_are_those_of_the_fast_transform(n):
    x = np.random.default_rng(0).standard_normal((n, 3))
    power = np.sum(np.abs(np.fft.rfft(x, axis=0)) ** 2, axis=1)
    power[1 : (n + 1) // 2] *= 2  # each of these stands for two complex frequencies
    found = fourier(x)
    np.testing.assert_allclose(found.share, power / power.sum(), rtol=1e-12)
    assert found.share.sum() == pytest.approx(1)


def test_one_wave_has_one_frequency_and_a_vector_is_refused():
    places = np.arange(11)[:, None]
    found = fourier(np.hstack([np.cos(2 * np.pi * 3 * places / 11), np.sin(2 * np.pi * 3 * places / 11)]))
    assert found.top(1)[0] == (3, pytest.approx(1))
    with pytest.raises(ShapeError, match="rows"):
        fourier(np.ones(4))
