"""Evaluation: over all of the data, and the same as if one did it by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

import sequences
from glassformer import ops
from glassformer.data import Examples, Windows
from glassformer.data.examples import count_targets
from glassformer.generation import Sampling
from glassformer.models import Batch, build
from glassformer.ops import IGNORE
from glassformer.training.evaluate import Evaluation, class_figures, evaluate, macro_average
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


def test_dropout_is_off_while_evaluating(tmp_path):
    session = tiny_session("majority", tmp_path / "run", dropout=0.5)
    first, second = (session.evaluate(session.state.params) for _ in range(2))
    assert first == second
    assert isinstance(first, Evaluation)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_large_models_read_fewer_examples_at_once():
    seen = []

    class Watched(Windows):
        def batches(self, size):
            seen.append(size)
            return iter(())

    for preset in ("tiny-decoder", "gpt2", "llama-2-7b"):
        evaluate(build(preset), None, Watched(np.arange(1000) % 7, 64))
    assert seen[0] == 64
    assert 1 <= seen[2] < seen[1] < 64
