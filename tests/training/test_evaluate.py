"""Evaluation: over all of the data, and the same as if one did it by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

import glassformer as gf
import sequences
from glassformer import ops
from glassformer.core.errors import ConfigError
from glassformer.data import Examples, Windows
from glassformer.data.examples import count_targets
from glassformer.generation import Sampling
from glassformer.generation.answer import ask
from glassformer.models import Batch, build
from glassformer.ops import IGNORE
from glassformer.runs.start import new_session
from glassformer.training.evaluate import Evaluation, class_figures, evaluate, macro_average
from glassformer.training.recipe import Recipe, weighted_cross_entropy
from runs import tiny_session


def every_loss(model, params, data):
    """The cross-entropy of every counted target, one example at a time."""
    losses = []
    for rows in data.batches(1):
        logits, _ = model.predict(params, rows)
        logits = np.asarray(logits, np.float64).reshape(-1, logits.shape[-1])
        targets = np.asarray(rows.targets).reshape(-1)
        for row, target in zip(logits, targets, strict=True):
            if target != IGNORE:
                losses.append(np.log(np.sum(np.exp(row - row.max()))) + row.max() - row[target])
    return losses


@pytest.mark.parametrize("task", ["majority", "sort", "dates", "lines", "text"])
def test_the_loss_is_the_mean_over_every_target(task, tmp_path):
    session = tiny_session(task, tmp_path / "run")
    losses = every_loss(session.model, session.state.params, session.task.held_out)
    for batch in (1, 3, 64):
        result = evaluate(session.model, session.state.params, session.task.held_out, batch=batch)
        assert result.loss == pytest.approx(np.mean(losses), abs=1e-6)
        assert result.targets == len(losses) == session.task.held_out.count
        assert result.accuracy is None


def test_of_a_long_text_the_same_random_windows_are_measured_and_their_error_is_told(tmp_path):
    session = tiny_session("text", tmp_path / "run")
    data = Windows(np.random.default_rng(0).integers(0, session.model.config.vocab, 4000), 8)
    found, again = (evaluate(session.model, session.state.params, data, most=1600) for _ in range(2))
    whole = evaluate(session.model, session.state.params, data)
    assert found == again
    assert (found.targets, found.examples, whole.targets, whole.error) == (1600, 200, 3999, None)
    assert 0 < abs(found.loss - whole.loss) < 4 * found.error < 0.2
    assert evaluate(session.model, session.state.params, data, most=3999) == whole


def test_the_accuracy_of_a_classifier_counts_likeliest_classes(tmp_path):
    session = tiny_session("majority", tmp_path / "run")
    data = session.task.held_out
    result = evaluate(session.model, session.state.params, data, metric="classes", batch=7)
    logits, _ = session.model.predict(session.state.params, data.rows)
    assert result.accuracy == pytest.approx(np.mean(np.argmax(logits, -1) == data.rows.targets))
    assert result.examples == len(data)
    table = np.array(result.confusion)
    assert table.sum() == len(data)
    assert np.trace(table) / len(data) == result.accuracy


def test_figures_of_classes_are_those_counted_by_hand():
    rng = np.random.default_rng(0)
    true, found = rng.integers(0, 3, 60), rng.integers(0, 3, 60)  # the last two of five classes never come
    data = Examples(Batch(found[:, None], np.where(np.arange(60) == 7, IGNORE, true)))
    model = Fixed(np.eye(5) * 3)
    model.config = SimpleNamespace(classes=5)
    result = evaluate(model, None, data, metric="classes", batch=16)
    true, found = np.delete(true, 7), np.delete(found, 7)
    figures = class_figures(result.confusion)
    for c, one in enumerate(figures[:3]):
        both = np.sum((true == c) & (found == c))
        precision, recall = both / np.sum(found == c), both / np.sum(true == c)
        assert one[:3] == pytest.approx((precision, recall, 2 * precision * recall / (precision + recall)))
        assert one[3:] == (np.sum(true == c), np.sum(found == c))
        assert result.confusion[c] == tuple(np.sum((true == c) & (found == k)) for k in range(5))
    assert figures[3] == (0, 0, 0, 0, 0)
    assert macro_average(figures) == pytest.approx(np.mean([one[:3] for one in figures[:3]], axis=0))


def written(model, params, row):
    """What a model writes, greedily, where the right answer has its counted targets; and that answer."""
    keep = slice(None) if row.mask is None else np.flatnonzero(row.mask[0])
    targets = row.targets[0, keep]
    counted = np.flatnonzero(targets != IGNORE)
    prompt = row.tokens[:, keep][:, : counted[0] + 1]
    source = row.source if row.source_mask is None else row.source[:, row.source_mask[0]]
    greedy = {"max_new_tokens": len(counted), "sampling": Sampling(temperature=0), "cache": False}
    (ids,), _ = sequences.written(
        model, params, list(prompt), sources=source if source is None else list(source), **greedy
    )
    return ids, targets[counted]


@pytest.mark.parametrize(("task", "steps", "lr"), [("sort", 120, 1e-2), ("dates", 160, 2e-2)])
def test_reading_the_right_answer_tells_what_greedy_writing_would_do(task, steps, lr, tmp_path):
    session = tiny_session(task, tmp_path / "run", steps=steps, lr=lr, width=16, batch=20, eval_every=1000)
    for _ in session.steps():
        pass
    data = session.task.train
    some = Examples(data.take(slice(0, 40)))
    right = []
    for row in some.batches(1):
        ids, targets = written(session.model, session.state.params, row)
        right.append(np.array_equal(ids, targets))
    assert 0 < sum(right) < len(right), "some answers should be right and some wrong"
    result = evaluate(session.model, session.state.params, some, metric="sequence", batch=16)
    assert result.accuracy == np.mean(right)


class Fixed:
    """A model whose logits are given."""

    def __init__(self, logits):
        self.logits = logits

    def predict(self, params, batch):
        return self.logits[batch.tokens[:, 0]], None


def test_one_wrong_token_makes_an_answer_wrong_and_ignored_ones_do_not_count():
    likeliest = np.array([[1, 2, 0], [1, 2, 0], [0, 0, 0]])
    logits = np.eye(3)[likeliest] * 5
    targets = np.array([[1, 2, 0], [1, 1, 0], [IGNORE, IGNORE, 0]])
    tokens = np.repeat(np.arange(3)[:, None], 3, axis=1)
    groups = ("a", "b", "b")
    data = Examples(Batch(tokens, targets))
    result = evaluate(Fixed(logits), None, data, metric="sequence", batch=2, groups=groups)
    assert result.accuracy == pytest.approx(2 / 3)
    assert result.groups == {"a": 1.0, "b": 0.5}
    expected, _ = ops.cross_entropy(logits, targets)
    assert result.loss == pytest.approx(float(expected))
    assert result.targets == count_targets(data.rows) == 7


def test_dropout_is_off_and_large_models_read_fewer_examples_at_once(tmp_path):
    session = tiny_session("majority", tmp_path / "run", dropout=0.5)
    first, second = (session.evaluate(session.state.params) for _ in range(2))
    assert first == second
    assert isinstance(first, Evaluation)

    seen = []

    class Watched(Windows):
        def batches(self, size):
            seen.append(size)
            return iter(())

    for preset in ("tiny-decoder", "gpt2", "llama-2-7b"):
        evaluate(build(preset), None, Watched(np.arange(1000) % 7, 64))
    assert seen[0] == 64
    assert 1 <= seen[2] < seen[1] < 64


def trained(task, folder, *, seed=0, **settings):
    """Train a task to the end; return the session and its records."""
    session = new_session(task, folder, settings=settings, seed=seed)
    return session, list(session.steps())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1])
def test_majority_is_learned_from_1600_sequences(tmp_path, seed):
    session, _ = trained("majority", tmp_path / "run", seed=seed)
    assert (len(session.task.train), len(session.task.held_out)) == (1600, 400)
    assert session.test(session.run.load_params()).accuracy >= 0.99


def test_counting_is_learned_with_the_reference_settings(tmp_path):
    session, records = trained("counting", tmp_path / "run")
    recipe, config = session.run.recipe, session.run.config
    assert (recipe.optimizer, recipe.lr, recipe.steps, recipe.batch) == ("sgd", 0.05, 300, 1)
    assert (config.norm_position, config.activation) == ("post", "relu")
    assert 2.5 < records[0].loss < 3.6
    assert records[-1].loss < 0.05
    assert records[-1].evaluation.loss < 0.05
    numbers = ["1", *ask(session.trained, "1").split()]
    assert numbers[:6] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_counting_takes_adam_a_fraction_of_the_epochs(optimizer, tmp_path):
    _, records = trained("counting", tmp_path / "run", optimizer=optimizer, lr=0.01, steps=60, eval_every=60)
    assert 2.5 < records[0].loss < 3.6
    assert records[-1].evaluation.loss < 0.05
    assert records[-1].evaluation.accuracy == 1.0


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
