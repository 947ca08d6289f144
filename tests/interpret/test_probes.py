"""Linear probes: they find what is there, and nothing where nothing is."""

import numpy as np
import pytest

from glassformer import Batch
from glassformer.errors import ConfigError, ShapeError, TokenError
from glassformer.interpret import fit_probe, probe_points, train_probe, watch
from glassformer.training import SGD


def test_a_linear_map_is_found_exactly(rng):
    x = rng.standard_normal((30, 4))
    w, b = rng.standard_normal((4, 2)), rng.standard_normal(2)
    probe = fit_probe(x, x @ w + b, ridge=0)
    assert np.allclose(probe.w, w)
    assert np.allclose(probe.b, b)
    assert probe.explained(x, x @ w + b) == pytest.approx(1)
    assert fit_probe(x, x[:, 0]).explained(x, x[:, 0]) == pytest.approx(1)


def test_ridge_is_the_minimum_of_its_loss(rng):
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
