"""Figures of trainings: the losses of one run or of several, and the measures of a replay step by step."""

import math

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.plots import loss_curve, loss_curves, save, training_course
from glassformer.plots.training import smooth, smooth_losses


def test_the_loss_curve_has_all_series():
    metrics = [{"step": i, "loss": 3 / (i + 1)} for i in range(80)]
    metrics[19] |= {"val_loss": 0.5, "accuracy": 0.7}
    metrics[39] |= {"val_loss": 0.2, "accuracy": 1.0}
    figure = loss_curve(metrics)
    ax, below = figure.axes
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["training", "training, smoothed", "validation, last 0.2"]
    assert ax.get_yscale() == "log"
    assert below.get_ylabel() == "accuracy"
    assert "validation loss from 0.5 at step 19 to 0.2 at step 39" in figure.get_label()


@pytest.mark.parametrize(
    "metrics",
    [
        [],
        [{"step": 1, "loss": 2.0}],
        [{"step": 1, "loss": None}, {"step": 2, "loss": math.nan}],
        [{"step": 1, "val_loss": 1.0}],
        [{"step": 1, "accuracy": 0.5}],
        [{"step": 0, "loss": 0.0}, {"step": 1, "loss": 0.0}],
    ],
)
def test_short_and_broken_trainings_are_drawn_too(metrics, tmp_path):
    assert save(loss_curve(metrics), tmp_path / "loss.png").stat().st_size > 1000


def test_smoothing_keeps_constants_and_straight_lines_on_a_log_scale():
    np.testing.assert_allclose(smooth(np.full(5, 2.0), 3), 2)
    line = np.arange(9.0)
    assert smooth(line, 4).tolist() == pytest.approx([1, 1.5, *line[2:-2], 6.5, 7])
    assert smooth(line, 1).tolist() == pytest.approx(line.tolist())
    losses = 0.9 ** np.arange(100)
    np.testing.assert_allclose(smooth_losses(losses, logarithmic=True)[1:-1], losses[1:-1])
    assert (smooth_losses(losses, logarithmic=False)[1:-1] > losses[1:-1]).all()


def metrics(steps, *, scale=1.0, evaluated=True, seconds=0.1):
    lines = [
        {"step": step, "loss": scale * (1 + 3 / step), "tokens": 10, "seconds": seconds} for step in range(1, steps + 1)
    ]
    for line in lines[9::10] if evaluated else ():
        line["val_loss"] = line["loss"] + 0.1 * scale
    return lines


def test_losses_are_drawn_by_step_and_by_time_as_far_as_they_go():
    figure = loss_curves({"a": metrics(40), "b": metrics(25, seconds=0.3)})
    left, right = figure.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("step", "seconds of training")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert left.lines[1].get_xdata().tolist() == [10, 20, 30, 40]
    assert right.lines[3].get_xdata().tolist() == pytest.approx([3.0, 6.0])
    assert "a: training loss from 4 to 1.07 at step 40" in figure.get_label()

    figure = loss_curves({"a": metrics(20, evaluated=False), "b": metrics(0), "c": metrics(15)})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "c"]
    empty = loss_curves({"a": metrics(0), "b": metrics(0)})
    assert "no metrics were recorded" in empty.get_label()


STEPS = [0, 10, 20]
ATTENTION = np.linspace(0, 1, 3 * 2 * 2 * 9).reshape(3, 2, 2, 3, 3)
VALUES = {
    "loss": np.array([np.nan, 2.0, 1.0]),
    "weight.a": np.array([1.0, 2.0, 3.0]),
    "weight.b": np.array([1.0, 1.0, 1.0]),
    "induction": np.linspace(0, 1, 12).reshape(3, 2, 2),
    "attention": ATTENTION,
    "answers": ["a", "b", "c"],
}


def test_every_measure_that_is_a_picture_is_drawn_for_the_heads_that_are_chosen(tmp_path):
    figure = training_course(STEPS, VALUES, title="Course")
    assert [ax.get_ylabel() for ax in figure.axes[:3]] == ["loss", "weight", "induction"]
    assert sum("head" in ax.get_ylabel() for ax in figure.axes) == 4
    assert figure.get_label() == "Course: loss, weight, induction, attention at 3 steps from 0 to 20."
    assert save(figure, tmp_path / "course.png").stat().st_size > 1000

    figure = training_course(STEPS, VALUES, heads=[(1, 0)])
    assert [ax.get_ylabel() for ax in figure.axes if "head" in ax.get_ylabel()] == ["layer 1\nhead 0"]
    (scores,) = [ax for ax in figure.axes if ax.get_ylabel() == "induction"]
    assert [line.get_label() for line in scores.lines] == ["layer 1, head 0"]
    with pytest.raises(ConfigError, match="no head 2 in layer 0"):
        training_course(STEPS, VALUES, heads=[(0, 2)])

    with pytest.raises(ConfigError, match="nothing to draw"):
        training_course(STEPS, {"answers": ["a", "b", "c"]})
