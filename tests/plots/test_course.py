"""The course of a training as a figure: one panel for each measure, one strip for each head that changes."""

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.plots import save, training_course

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
