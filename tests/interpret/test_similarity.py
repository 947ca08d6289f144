"""Linear CKA: blind to rotation and scale, and low between what has nothing in common."""

import numpy as np
import pytest

from glassformer.errors import ConfigError, ShapeError
from glassformer.interpret import layer_similarity, linear_cka, token_rows, watch


def test_rotation_and_scale_change_nothing(rng):
    x = rng.standard_normal((40, 6))
    turn, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    assert linear_cka(x, 3 * x @ turn + 1) == pytest.approx(1)
    assert linear_cka(x, rng.standard_normal((40, 6))) < 0.5


def test_both_ways_to_compute_it_agree(rng):
    x, y = rng.standard_normal((10, 4)), rng.standard_normal((10, 7))
    wide = np.pad(y, ((0, 0), (0, 9)))  # more features than tokens: the other formula
    assert linear_cka(x, y) == pytest.approx(linear_cka(x, wide), rel=1e-12)
    a, b = x - x.mean(0), y - y.mean(0)
    expected = np.linalg.norm(a.T @ b) ** 2 / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b)
    assert linear_cka(x, y) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["encoder", "decoder", "encoder_decoder"])
def test_layers_are_compared_without_padding(name, request):
    run = watch(*request.getfixturevalue(name))
    found = layer_similarity(run)
    assert np.allclose(np.diag(found), 1)
    assert np.allclose(found, found.T)
    assert np.all((found >= 0) & (found <= 1 + 1e-12))
    prefix = "decoder.blocks" if name == "encoder_decoder" else "blocks"
    assert token_rows(run, f"{prefix}.0").shape == (8, 8)  # five tokens, and three of the padded example


def test_two_models_are_compared(decoder):
    model, params, batch = decoder
    run, other = watch(model, params, batch), watch(model, model.init(1, np.float64), batch)
    found = layer_similarity(run, other, at=["blocks.0", "blocks.1"])
    assert found.shape == (2, 2)
    assert found[0, 1] == pytest.approx(linear_cka(token_rows(run, "blocks.0"), token_rows(other, "blocks.1")))


def test_what_does_not_fit_is_refused(decoder):
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
