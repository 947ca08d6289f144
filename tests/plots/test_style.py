"""Figures become files whole or not at all, and leave no trace in matplotlib."""

import subprocess
import sys
from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from glassformer.core.errors import CheckpointError, ConfigError
from glassformer.plots import THEMES, attention_heads, loss_curve, prediction_bars, save, save_themes, style, themed
from glassformer.plots.labels import visible


def test_a_file_is_a_png_with_its_description_inside(tmp_path):
    figure = prediction_bars(np.array([0.75, 0.25]), lambda i: ["né", "月"][i])
    path = save(figure, tmp_path / "new" / "bars.png")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width > 500
        assert image.text["Description"] == figure.get_label()
        assert "né 75.0 %" in image.text["Description"]
    assert [file.name for file in path.parent.iterdir()] == ["bars.png"]


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF-")])
def test_the_same_figure_gives_the_same_bytes(tmp_path, form, begin):
    paths = [save(prediction_bars(np.array([0.75, 0.25])), tmp_path / f"{i}.{form}") for i in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes().startswith(begin)


def test_both_themes_are_drawn_or_one_alone_and_others_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"bars\.jpg does not end in the name of a format"):
        save(prediction_bars(np.array([0.75, 0.25])), tmp_path / "bars.jpg")
    with pytest.raises(ConfigError, match="there is no theme 'sepia'"):
        save_themes(lambda: prediction_bars(np.array([1.0])), tmp_path, "bars", theme="sepia")

    draw = partial(prediction_bars, np.array([0.75, 0.25]))
    light, dark = save_themes(draw, tmp_path, "bars")
    (alone,) = save_themes(draw, tmp_path, "alone", theme="dark")
    assert (light.name, dark.name, alone.name) == ("bars.png", "bars-dark.png", "alone.png")
    assert alone.read_bytes() == dark.read_bytes()
    with Image.open(light) as one, Image.open(dark) as other:
        corners = [image.convert("RGB").getpixel((0, 0)) for image in (one, other)]
    assert corners == [(255, 255, 255), (0x1D, 0x22, 0x2B)]


def test_the_settings_of_matplotlib_stay_as_they_were_and_do_not_reach_the_figure(tmp_path):
    before = dict(mpl.rcParams)
    save(prediction_bars(np.array([0.75, 0.25])), tmp_path / "bars.png")
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"figure.facecolor": "black", "text.color": "white", "axes.grid": True}):
        figure = prediction_bars(np.array([0.75, 0.25]))
    assert figure.get_facecolor() == (1, 1, 1, 1)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"bars\.png cannot be written"):
        save(prediction_bars(np.array([0.75, 0.25])), tmp_path / "file" / "bars.png")


def test_no_global_figures_are_made(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "import glassformer\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from glassformer.plots import prediction_bars, save\n"
        "save(prediction_bars(np.array([0.5, 0.5])), sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "bars.png")], check=True)


def test_a_row_of_panels_goes_on_in_the_next_line(unseen_figures):
    figure, axes = style.row(5, 3.0, 2.0, columns=3)
    assert len(axes) == len(figure.axes) == 5
    assert axes[0].get_gridspec().ncols == 3
    assert figure.get_size_inches().tolist() == [9.0, 4.0]


METRICS = [{"step": i, "loss": 2 / (i + 1), "val_loss": 1.0, "accuracy": 0.5} for i in range(30)]


def test_a_figure_keeps_its_theme_when_saved_and_a_theme_ends_even_after_an_error(tmp_path):
    with themed("dark"):
        figure = loss_curve(METRICS)
    save(figure, tmp_path / "dark.png")
    assert figure.get_facecolor()[:3] == to_rgb(THEMES["dark"].page)
    labels = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    assert {label.get_color() for label in labels} == {THEMES["dark"].ink}
    assert style.colors().name == "light"

    with pytest.raises(ZeroDivisionError), themed("dark"):
        _ = 1 / 0
    assert style.colors().name == "light"


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("a", "a"),
        (" the", "␣the"),
        ("\n", "↵"),
        ("\t", "⇥"),
        ("", "∅"),
        ("\x00", "\\u0000"),
        ("\u200b", "\\u200b"),
        ("\ud800", "\\ud800"),
        ("\N{COMBINING ACUTE ACCENT}", "◌\N{COMBINING ACUTE ACCENT}"),
        ("März", "März"),
        ("a long word that goes on", "a long word t…"),
        ("   ", "␣␣␣"),
        ("class 1 ", "class 1␣"),
    ],
)
def test_labels_are_one_short_visible_line(label, shown):
    assert visible(label) == shown


def test_any_token_is_drawn_as_it_is_without_a_warning(tmp_path):
    assert visible("$x$") == r"\$x\$"
    assert prediction_bars(np.ones(1), lambda i: "$x$").get_label().endswith("$x$ 100 %.")

    strange = ["$", "$x$", "月", "\x07", "\u202e", "\ud83d", "عام", "\\frac{1}", "_^{}", "<script>", "😀", "é"]
    count = len(strange)
    figure = attention_heads(np.full((1, count, count), 1 / count), strange, title="100 % of $5$ & <b>")
    save(figure, tmp_path / "strange.png")
    save(prediction_bars(np.full(count, 1 / count), lambda i: strange[i], top=count), tmp_path / "bars.png")
