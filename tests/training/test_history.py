"""The history of a training: records, arrays, and what a metrics file keeps of them."""

import numpy as np

from glassformer.training import Evaluation, History, StepRecord


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
