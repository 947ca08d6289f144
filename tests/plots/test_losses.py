"""The losses of several runs in one figure."""

import pytest

from glassformer.plots import loss_curves


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
