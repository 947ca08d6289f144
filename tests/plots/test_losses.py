"""The losses of several runs in one figure."""

from functools import partial

import pytest

from glassformer.errors import ConfigError
from glassformer.plots import loss_curves, save_themes


def metrics(steps, *, scale=1.0, evaluated=True, seconds=0.1):
    lines = [
        {"step": step, "loss": scale * (1 + 3 / step), "tokens": 10, "seconds": seconds} for step in range(1, steps + 1)
    ]
    for line in lines[9::10] if evaluated else ():
        line["val_loss"] = line["loss"] + 0.1 * scale
    return lines


def test_losses_are_drawn_by_step_and_by_time():
    figure = loss_curves({"a": metrics(40), "b": metrics(25, seconds=0.3)})
    left, right = figure.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("step", "seconds of training")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert left.lines[1].get_xdata().tolist() == [10, 20, 30, 40]
    assert right.lines[3].get_xdata().tolist() == pytest.approx([3.0, 6.0])
    assert "a: training loss from 4 to 1.07 at step 40" in figure.get_label()


def test_runs_without_evaluations_or_without_metrics_are_drawn_as_far_as_they_go():
    figure = loss_curves({"a": metrics(20, evaluated=False), "b": metrics(0), "c": metrics(15)})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "c"]
    empty = loss_curves({"a": metrics(0), "b": metrics(0)})
    assert "no metrics were recorded" in empty.get_label()


def test_losses_far_apart_are_drawn_on_a_logarithmic_scale():
    figure = loss_curves({"a": metrics(20), "b": metrics(20, scale=0.01)})
    assert figure.axes[0].get_yscale() == figure.axes[1].get_yscale() == "log"
    assert "log scale" in figure.axes[0].get_ylabel()


def test_many_runs_are_told_apart():
    figure = loss_curves({f"run {i}": metrics(12, evaluated=False) for i in range(9)})
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 9


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_files_are_written_in_light_and_dark(form, begin, tmp_path):
    paths = save_themes(partial(loss_curves, {"a": metrics(12)}), tmp_path, "losses", form=form)
    assert [path.name for path in paths] == [f"losses.{form}", f"losses-dark.{form}"]
    assert all(path.read_bytes().startswith(begin) for path in paths)
    assert paths[0].read_bytes() != paths[1].read_bytes()
    again = save_themes(partial(loss_curves, {"a": metrics(12)}), tmp_path / "again", "losses", form=form)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_unknown_formats_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no format 'gif'"):
        save_themes(partial(loss_curves, {}), tmp_path, "losses", form="gif")
