"""Linear probes find what is there, and nothing where nothing is; linear CKA ignores rotation and scale."""

import numpy as np
import pytest

from glassformer import Batch
from glassformer.core.errors import ConfigError, ShapeError, TokenError
from glassformer.interpret import fit_probe, layer_similarity, linear_cka, probe_points, token_rows, train_probe, watch
from glassformer.training import SGD


def test_a_linear_map_is_found_exactly_and_ridge_is_the_minimum_of_its_loss(rng):
    x = rng.standard_normal((30, 4))
    w, b = rng.standard_normal((4, 2)), rng.standard_normal(2)
    probe = fit_probe(x, x @ w + b, ridge=0)
    assert np.allclose(probe.w, w)
    assert np.allclose(probe.b, b)
    assert probe.explained(x, x @ w + b) == pytest.approx(1)
    assert fit_probe(x, x[:, 0]).explained(x, x[:, 0]) == pytest.approx(1)

    x, y = rng.standard_normal((20, 3)), rng.standard_normal((20, 1))
    probe = fit_probe(x, y, ridge=0.5)
    centered = x - x.mean(0)
    strength = 0.5 * np.sum(centered**2) / 3
    slope = centered.T @ (probe.read(x) - y) + strength * probe.w
    assert np.allclose(slope, 0, atol=1e-12)


@pytest.mark.parametrize("how", ["closed form", "steps", "any optimizer"])
def test_classes_are_read(rng, how):
    labels = rng.integers(0, 3, 60)
    x = 4 * np.eye(3)[labels] @ rng.standard_normal((3, 5)) + 0.1 * rng.standard_normal((60, 5))
    if how == "closed form":
        probe = fit_probe(x, labels, classes=3)
    else:
        settings = {"optimizer": SGD(momentum=0.9)} if how == "any optimizer" else {}
        probe, losses = train_probe(x, labels, classes=3, steps=80, **settings)
        assert losses[0] == pytest.approx(np.log(3))
        assert losses[-1] < 0.2
    assert probe.accuracy(x, labels) > 0.95
    assert np.mean(probe.classes(x) == labels) == probe.accuracy(x, labels)


@pytest.mark.parametrize("name", ["encoder", "decoder", "encoder_decoder"])
def test_the_token_itself_is_read_at_the_embedding(name, request, rng):
    model, params, batch = request.getfixturevalue(name)
    runs = []
    for _ in range(2):
        tokens = rng.integers(0, 5, (12, 6))
        mask = np.arange(6) < rng.integers(4, 7, (12, 1))
        source = None if batch.source is None else rng.integers(0, 9, (12, 4))
        runs.append(watch(model, params, Batch(tokens, mask=mask, source=source)))
    labels = [run.batch.tokens % 2 for run in runs]
    found = probe_points(runs[0], labels[0], runs[1], labels[1], classes=2)
    assert next(iter(found.values())) > 0.8
    assert len(found) == (7 if name == "encoder_decoder" else 5)


def test_what_does_not_fit_is_refused(rng, decoder):
    x = rng.standard_normal((6, 3))
    with pytest.raises(ShapeError, match="one for each vector"):
        fit_probe(x, np.zeros(5))
    with pytest.raises(TokenError, match="there is a class 4 of 3"):
        fit_probe(x, np.array([0, 1, 2, 4, 0, 1]), classes=3)
    with pytest.raises(ConfigError, match="ridge is -1"):
        fit_probe(x, np.zeros(6), ridge=-1)
    with pytest.raises(ShapeError, match="this probe reads 3 features"):
        fit_probe(x, np.zeros(6)).read(np.zeros((2, 4)))
    with pytest.raises(ShapeError, match="give a class for each vector"):
        train_probe(x, np.zeros(6), classes=2)
    run = watch(*decoder)
    with pytest.raises(ShapeError, match="one for each token"):
        probe_points(run, np.zeros((2, 3), int), run, np.zeros((2, 3), int), classes=2)


def test_rotation_and_scale_change_nothing_and_both_ways_to_compute_it_agree(rng):
    x = rng.standard_normal((40, 6))
    turn, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    assert linear_cka(x, 3 * x @ turn + 1) == pytest.approx(1)
    assert linear_cka(x, rng.standard_normal((40, 6))) < 0.5

    x, y = rng.standard_normal((10, 4)), rng.standard_normal((10, 7))
    wide = np.pad(y, ((0, 0), (0, 9)))  # more features than tokens: the other formula
    assert linear_cka(x, y) == pytest.approx(linear_cka(x, wide), rel=1e-12)
    a, b = x - x.mean(0), y - y.mean(0)
    expected = np.linalg.norm(a.T @ b) ** 2 / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b)
    assert linear_cka(x, y) == pytest.approx(expected, rel=1e-12)


def test_layers_and_models_are_compared_without_padding(run, decoder):
    found = layer_similarity(run)
    assert np.allclose(np.diag(found), 1)
    assert np.allclose(found, found.T)
    assert np.all((found >= 0) & (found <= 1 + 1e-12))
    prefix = "blocks" if run.batch.source is None else "decoder.blocks"
    assert token_rows(run, f"{prefix}.0").shape == (8, 8)  # five tokens, and three of the padded example

    model, params, batch = decoder
    run, other = watch(model, params, batch), watch(model, model.init(1, np.float64), batch)
    found = layer_similarity(run, other, at=["blocks.0", "blocks.1"])
    assert found.shape == (2, 2)
    assert found[0, 1] == pytest.approx(linear_cka(token_rows(run, "blocks.0"), token_rows(other, "blocks.1")))


def test_vectors_that_do_not_fit_are_not_compared(decoder):
    model, params, batch = decoder
    run = watch(model, params, batch)
    with pytest.raises(ShapeError, match="of the same tokens"):
        linear_cka(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(ConfigError, match="all vectors of a layer are equal"):
        linear_cka(np.ones((3, 2)), np.eye(3))
    with pytest.raises(ConfigError, match="different tokens"):
        layer_similarity(run, watch(model, params, batch._replace(tokens=batch.tokens[::-1])))
    with pytest.raises(ConfigError, match="one vector per token"):
        token_rows(run, "blocks.0.attention.attend.q")
