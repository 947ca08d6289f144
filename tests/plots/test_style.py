"""Figures become files whole or not at all, and leave no trace in matplotlib."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from glassformer.errors import CheckpointError, ConfigError
from glassformer.plots import prediction_bars, save
from glassformer.plots.style import ink_on


def test_a_file_is_a_png_with_its_description_inside(tmp_path):
    figure = prediction_bars(np.array([0.75, 0.25]), lambda i: ["né", "月"][i])
    path = save(figure, tmp_path / "new" / "bars.png")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width > 500
        assert image.text["Description"] == figure.get_label()
        assert "né 75.0 %" in image.text["Description"]
    assert [file.name for file in path.parent.iterdir()] == ["bars.png"]


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    paths = [save(prediction_bars(np.array([0.75, 0.25])), tmp_path / f"{i}.png") for i in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_settings_of_matplotlib_stay_as_they_were(tmp_path):
    before = dict(mpl.rcParams)
    save(prediction_bars(np.array([0.75, 0.25])), tmp_path / "bars.png")
    assert dict(mpl.rcParams) == before


def test_a_dark_theme_of_the_caller_does_not_reach_the_figure():
    with mpl.rc_context({"figure.facecolor": "black", "text.color": "white", "axes.grid": True}):
        figure = prediction_bars(np.array([0.75, 0.25]))
    assert figure.get_facecolor() == (1, 1, 1, 1)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"bars\.png cannot be written"):
        save(prediction_bars(np.array([0.75, 0.25])), tmp_path / "file" / "bars.png")


def test_what_is_no_figure_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="3 is no figure"):
        save(3, tmp_path / "bars.png")


def test_text_reads_on_any_background():
    assert ink_on((1, 1, 1, 1)) != "white"
    assert ink_on((0, 0, 0, 1)) == "white"


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
