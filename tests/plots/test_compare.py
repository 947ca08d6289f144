"""The losses of several runs in one figure."""

from functools import partial

import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from glassformer.errors import ConfigError
from glassformer.plots import save_themes
from glassformer.plots.compare import loss_comparison
from glassformer.plots.theme import THEMES, themed
from glassformer.runs.comparison import curves_of


def curves(name, steps, *, scale=1.0, evaluated=True, seconds=0.1):
    metrics = [
        {"step": step, "loss": scale * (1 + 3 / step), "tokens": 10, "seconds": seconds} for step in range(1, steps + 1)
    ]
    for line in metrics[9::10] if evaluated else ():
        line["val_loss"] = line["loss"] + 0.1 * scale
    return curves_of(name, metrics)


def test_losses_are_drawn_by_step_and_by_time():
    figure = loss_comparison([curves("a", 40), curves("b", 25, seconds=0.3)])
    left, right = figure.axes
    assert (left.get_xlabel(), right.get_xlabel()) == ("step", "seconds of training")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert left.lines[1].get_xdata().tolist() == [10, 20, 30, 40]
    assert right.lines[3].get_xdata().tolist() == pytest.approx([3.0, 6.0])
    assert "a: training loss from 4 to 1.07 at step 40" in figure.get_label()


@pytest.mark.parametrize("theme", THEMES)
def test_both_themes_set_text_apart_from_their_background(theme):
    with themed(theme):
        figure = loss_comparison([curves("a", 20)])
    ground = sum(to_rgb(figure.get_facecolor()))
    ink = sum(to_rgb(figure.axes[0].xaxis.label.get_color()))
    assert (ground > 2.5) == (theme == "light")
    assert abs(ground - ink) > 1.5


def test_runs_without_evaluations_or_without_metrics_are_drawn_as_far_as_they_go():
    figure = loss_comparison([curves("a", 20, evaluated=False), curves("b", 0), curves("c", 15)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "c"]
    empty = loss_comparison([curves("a", 0), curves("b", 0)])
    assert "no metrics were recorded" in empty.get_label()


def test_losses_far_apart_are_drawn_on_a_logarithmic_scale():
    figure = loss_comparison([curves("a", 20), curves("b", 20, scale=0.01)])
    assert figure.axes[0].get_yscale() == figure.axes[1].get_yscale() == "log"
    assert "log scale" in figure.axes[0].get_ylabel()


def test_many_runs_are_told_apart():
    figure = loss_comparison([curves(f"run {i}", 12, evaluated=False) for i in range(9)])
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(looks) == 9


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_files_are_written_in_light_and_dark(form, begin, tmp_path):
    paths = save_themes(partial(loss_comparison, [curves("a", 12)]), tmp_path, "losses", form=form)
    assert [path.name for path in paths] == [f"losses.{form}", f"losses-dark.{form}"]
    assert all(path.read_bytes().startswith(begin) for path in paths)
    assert paths[0].read_bytes() != paths[1].read_bytes()
    again = save_themes(partial(loss_comparison, [curves("a", 12)]), tmp_path / "again", "losses", form=form)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_a_picture_holds_its_description(tmp_path):
    path, _ = save_themes(partial(loss_comparison, [curves("a", 12)]), tmp_path, "losses")
    with Image.open(path) as image:
        assert image.text["Description"].startswith("Losses: a: training loss")


def test_unknown_formats_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no format 'gif'"):
        save_themes(partial(loss_comparison, []), tmp_path, "losses", form="gif")
