"""The loop: one record per step, nothing but the seed decides, and every knob does what it says."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import ops
from glassformer.core.tree import flatten, tree_map
from glassformer.data.examples import count_targets
from glassformer.training import EMA, History, StepRecord, global_norm
from glassformer.training.evaluate import Evaluation
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer, final_params, start
from runs import are_same, assert_same_bits, tiny_session


def train(session, recipe, state=None, **options):
    """All states and records of a run without a folder."""
    state = start(session.model, recipe) if state is None else state
    return list(training_steps(Trainer(session.model, recipe), session.task.train, state, **options))


@pytest.fixture
def majority(tmp_path):
    return tiny_session("majority", tmp_path / "run")


@pytest.fixture
def lines(tmp_path):
    return tiny_session("lines", tmp_path / "run")


def test_every_step_yields_one_record_and_the_first_is_the_loss_of_the_first_batch(majority):
    steps = train(majority, Recipe(steps=7, batch=8, warmup=0, schedule="constant", lr=0.01))
    assert [record.step for _, record in steps] == [state.step for state, _ in steps] == list(range(1, 8))
    assert all(record.lr == 0.01 and record.tokens == 8 * 8 and record.seconds > 0 for _, record in steps)
    assert all(not record.refused and record.evaluation is None for _, record in steps)

    recipe = Recipe(steps=1, batch=8)
    state = start(majority.model, recipe)
    loss, grads = majority.model.loss_and_grads(state.params, majority.task.train.batch(0, 8, 0))
    ((_, record),) = train(majority, recipe)
    assert record.loss == float(loss)
    assert record.grad_norm == float(global_norm(grads))
    line = record.to_dict()
    assert line["loss"] == record.loss
    assert list(line) == ["step", "loss", "lr", "grad_norm", "tokens", "seconds"]


def test_tokens_of_source_and_target_both_count(tmp_path):
    session = tiny_session("dates", tmp_path / "run")
    batch = session.task.train.batch(0, 4, 0)
    ((_, record),) = train(session, Recipe(steps=1, batch=4))
    assert record.tokens == batch.tokens.size + batch.source.size


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lion", "muon"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(optimizer, tmp_path):
    session = tiny_session("majority", tmp_path / "run", dropout=0.2)
    recipe = Recipe(steps=5, batch=8, optimizer=optimizer, lr=0.01)
    first, second, other = (train(session, replace(recipe, seed=seed))[-1] for seed in (0, 0, 1))
    assert_same_bits(first[0].params, second[0].params)
    assert_same_bits(first[0].optimizer, second[0].optimizer)
    assert first[1].loss == second[1].loss
    assert not are_same(first[0].params, other[0].params)


def test_the_seed_decides_weights_batches_and_dropout(tmp_path):
    session = tiny_session("majority", tmp_path / "run", dropout=0.5)
    params = session.model.init(0)
    losses = [
        train(session, recipe, start(session.model, recipe, params))[0][1].loss
        for recipe in (Recipe(steps=1, batch=48, seed=seed) for seed in (1, 2))
    ]
    assert losses[0] != losses[1]  # the batch is all of the data in another order: dropout differs


def test_a_loop_continued_from_a_state_computes_the_same_bits_and_never_changes_it(majority):
    recipe = Recipe(steps=8, batch=8, ema=0.9)
    whole = train(majority, recipe)
    rest = train(majority, recipe, whole[3][0])
    assert [record.step for _, record in rest] == [5, 6, 7, 8]
    for part in ("params", "optimizer", "ema"):
        assert_same_bits(getattr(rest[-1][0], part), getattr(whole[-1][0], part))

    recipe = Recipe(steps=4, batch=8)
    state = start(majority.model, recipe)
    before = tree_map(np.copy, state.params)
    train(majority, recipe, state)
    assert_same_bits(state.params, before)


@pytest.mark.parametrize("task", ["majority", "lines", "dates"])
@pytest.mark.parametrize("parts", [2, 3, 8])
def test_accumulated_microbatches_equal_one_large_batch(task, parts, tmp_path):
    session = tiny_session(task, tmp_path / "run", dropout=0.0)
    recipe = Recipe(steps=6, batch=8, optimizer="sgd", lr=0.1, label_smoothing=0.1)
    large, small = train(session, recipe), train(session, replace(recipe, accumulate=parts))
    for (_, a), (_, b) in zip(large, small, strict=True):
        assert b.loss == pytest.approx(a.loss, abs=1e-6)
        assert b.grad_norm == pytest.approx(a.grad_norm, abs=1e-5)
        assert a.tokens == b.tokens
    want, have = flatten(large[-1][0].params), flatten(small[-1][0].params)
    for name in want:
        np.testing.assert_allclose(have[name], want[name], rtol=0, atol=1e-6)


def test_microbatches_hold_different_numbers_of_targets(lines):
    # Otherwise the test above would not notice a plain mean.
    batch = lines.task.train.batch(0, 8, 0)
    halves = [type(batch)(*(None if x is None else x[part] for x in batch)) for part in (slice(0, 4), slice(4, 8))]
    assert len({count_targets(half) for half in halves}) == 2


def test_microbatches_draw_dropout_of_their_own(tmp_path):
    session = tiny_session("majority", tmp_path / "run", dropout=0.5)
    recipe = Recipe(steps=1, batch=8)
    assert train(session, recipe)[0][1].loss != train(session, replace(recipe, accumulate=2))[0][1].loss


def test_clipping_shortens_the_step_and_reports_the_norm_before(majority):
    recipe = Recipe(steps=1, batch=8, optimizer="sgd", lr=1.0, warmup=0, schedule="constant")
    first = start(majority.model, recipe).params

    def moved(clip):
        ((state, record),) = train(majority, replace(recipe, clip=clip))
        return float(global_norm(tree_map(lambda a, b: a - b, state.params, first))), record.grad_norm

    free, norm = moved(0.0)
    assert free == pytest.approx(norm, rel=1e-4)
    assert moved(None) == (free, norm)
    assert moved(1e6) == (free, norm)
    assert moved(0.01) == (pytest.approx(0.01, rel=1e-2), norm)


def test_label_smoothing_is_part_of_the_training_loss_alone(majority):
    recipe = Recipe(steps=1, batch=8, label_smoothing=0.3)
    params = start(majority.model, recipe).params
    expected = majority.model.loss(params, majority.task.train.batch(0, 8, 0), smoothing=0.3)
    ((_, record),) = train(majority, recipe)
    assert record.loss == float(expected)


def scripted(losses):
    """An evaluation that gives these losses one after the other, and keeps what it was asked about."""
    asked = []

    def evaluate(params):
        asked.append(params)
        return Evaluation(losses[len(asked) - 1], 1, 1)

    return evaluate, asked


def test_evaluations_come_at_their_steps_and_at_the_end(majority):
    evaluate, asked = scripted([3.0, 2.0, 2.5, 1.0])
    steps = train(majority, Recipe(steps=10, batch=8, eval_every=3), evaluate=evaluate)
    at = [record.step for _, record in steps if record.evaluation is not None]
    assert at == [3, 6, 9, 10]
    assert [record.is_best for _, record in steps if record.evaluation] == [True, True, False, True]
    assert steps[-1][0].best == 1.0
    assert_same_bits(asked[0], steps[2][0].params)
    assert steps[2][1].to_dict()["val_loss"] == 3.0


def test_the_moving_average_is_what_counts(majority):
    evaluate, asked = scripted([1.0])
    recipe = Recipe(steps=5, batch=8, ema=0.5, eval_every=5)
    steps = train(majority, recipe, evaluate=evaluate)
    average, state = EMA(0.5), EMA(0.5).init(start(majority.model, recipe).params)
    for after, _ in steps:
        state = average.update(state, after.params)
    assert_same_bits(asked[0], state["average"])
    assert_same_bits(final_params(steps[-1][0], recipe), state["average"])
    assert not are_same(asked[0], steps[-1][0].params)
    plain = Recipe(steps=5, batch=8)
    assert_same_bits(final_params(train(majority, plain)[-1][0], plain), steps[-1][0].params)


def test_patience_ends_a_run_that_no_longer_improves_and_a_loss_that_is_no_number_is_never_best(majority):
    recipe = Recipe(steps=100, batch=8, eval_every=2, patience=3)
    evaluate, _ = scripted([2.0, 1.0, 1.5, 1.0, 1.2, 0.1])
    steps = train(majority, recipe, evaluate=evaluate)
    assert steps[-1][1].step == 10
    assert [record.stop for _, record in steps] == [False] * 9 + [True]
    assert steps[-1][0].best == 1.0
    assert train(majority, recipe, steps[-1][0]) == []  # a stopped run stays stopped when it is resumed

    evaluate, _ = scripted([2.0, 2.1, 1.0, 1.1, 0.5, 0.6])
    steps = train(majority, Recipe(steps=12, batch=8, eval_every=2, patience=2), evaluate=evaluate)
    assert steps[-1][1].step == 12

    evaluate, _ = scripted([float("nan"), 2.0, float("inf")])
    steps = train(majority, Recipe(steps=3, batch=8, eval_every=1), evaluate=evaluate)
    assert [record.is_best for _, record in steps] == [False, True, False]
    assert steps[0][1].to_dict()["val_loss"] is None
    assert steps[-1][0].best == 2.0


def test_dropout_needs_the_key_of_the_step(tmp_path):
    session = tiny_session("majority", tmp_path / "run", dropout=0.5)
    recipe = Recipe(steps=2, batch=8, seed=3)
    steps = train(session, recipe)
    key = ops.fold_key(ops.new_key(3), 1)
    loss, _ = session.model.loss_and_grads(steps[0][0].params, session.task.train.batch(1, 8, 3), key=key)
    assert steps[1][1].loss == float(loss)


def record(step, **settings):
    return StepRecord(step, 3.0 / step, 0.1, 1.0, 8, 0.5, **settings)


def test_it_is_a_list_and_arrays_that_come_back_from_metrics():
    history = History([record(1), record(2, evaluation=Evaluation(1.5, 4, 4, 0.25), is_best=True), record(3)])
    assert history[1].is_best
    assert history.step.tolist() == [1, 2, 3]
    assert history.loss.tolist() == [3.0, 1.5, 1.0]
    assert history.seconds.tolist() == [0.5, 0.5, 0.5]
    assert (history.val_step.tolist(), history.val_loss.tolist(), history.accuracy.tolist()) == ([2], [1.5], [0.25])
    assert repr(history) == "History(3 steps, loss 1.0000, validation loss 1.5000)"
    assert repr(History()) == "History(no steps)"

    history = History([record(1, refused=True), record(2, evaluation=Evaluation(1.5, 4, 4), is_best=True)])
    again = History.from_metrics(history.metrics)
    assert again.metrics == history.metrics
    assert np.isnan(again.accuracy).all()

    history = History([StepRecord(1, float("inf"), 0.1, float("nan"), 8, 0.5)])
    assert np.isnan(History.from_metrics(history.metrics).loss[0])
