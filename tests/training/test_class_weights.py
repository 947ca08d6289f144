"""Class weights: the gradient is exact, parts of a batch average to the whole, and rare classes are learned."""

import numpy as np
import pytest

import glassformer as gf
from glassformer import ops
from glassformer.core.errors import ConfigError
from glassformer.training.recipe import Recipe, weighted_cross_entropy

WEIGHTS = (0.5, 3.0, 1.25)
TARGETS = np.array([0, 2, 1, ops.IGNORE, 0, 1, 2, 2])
SHARES = (3 / 7, 4 / 7)
LOGITS = np.random.default_rng(0).normal(size=(8, 3))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_exact(smoothing):
    forward, backward = weighted_cross_entropy(WEIGHTS, smoothing)
    loss, saved = forward(LOGITS, TARGETS)
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(axis=-1, keepdims=True))
    if not smoothing:
        by_hand = [-WEIGHTS[t] * log_p[i, t] for i, t in enumerate(TARGETS) if t != ops.IGNORE]
        assert np.isclose(loss, np.sum(by_hand) / 7, rtol=1e-14)
    found = backward(1.0, saved)
    for place in np.ndindex(*LOGITS.shape):
        step = np.zeros_like(LOGITS)
        step[place] = 1e-6
        slope = (forward(LOGITS + step, TARGETS)[0] - forward(LOGITS - step, TARGETS)[0]) / 2e-6
        assert np.isclose(found[place], slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
def test_parts_of_a_batch_average_to_the_whole_on_every_engine(engine):
    forward, backward = weighted_cross_entropy(WEIGHTS, 0.0)
    with gf.use_engine(engine):
        xp = __import__("jax.numpy").numpy if engine == "jax" else np
        logits = xp.asarray(LOGITS, dtype="float32")
        whole, saved = forward(logits, xp.asarray(TARGETS))
        parts = [forward(logits[rows], xp.asarray(TARGETS[rows])) for rows in (slice(0, 3), slice(3, 8))]
        joined = np.concatenate(
            [np.asarray(backward(share, part[1])) for share, part in zip(SHARES, parts, strict=True)]
        )
        assert np.isclose(whole, (3 * float(parts[0][0]) + 4 * float(parts[1][0])) / 7, rtol=1e-6)
        assert np.allclose(np.asarray(backward(1.0, saved)), joined, atol=1e-6)


def test_balanced_classes_weigh_the_same_and_a_run_keeps_their_weights(tmp_path):
    rows = [{"text": f"word {i} {'odd' if i % 10 == 0 else 'even'}", "label": i % 10 == 0} for i in range(100)]
    task = gf.data.build_task("classify", data=rows, class_weights="balanced")
    assert np.allclose(task.recipe["class_weights"], [90 / (2 * 81), 90 / (2 * 9)])
    recipe = Recipe.from_dict({"class_weights": task.recipe["class_weights"]})
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert Recipe().loss_settings() == {"smoothing": 0.0}
    with pytest.raises(ConfigError, match="class_weights are"):
        Recipe(class_weights=(1.0, -1.0))
    settings = {"width": 8, "heads": 2, "layers": 1, "class_weights": "balanced", "show": False}
    model = gf.train(rows, steps=2, out=tmp_path / "run", **settings)
    assert model.labels == ("false", "true")
    assert len((tmp_path / "run" / "rows.jsonl").read_text().splitlines()) == len(rows)
    assert gf.resume(tmp_path / "run", steps=3, show=False).labels == model.labels
