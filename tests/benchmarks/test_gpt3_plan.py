"""Bars of memory: every kind to scale, the limit as a line."""

import subprocess
import sys
from pathlib import Path

from glassformer.core.execution import MeshShape
from glassformer.engines.mesh.plan import plan
from glassformer.models import preset
from glassformer.plots import save
from gpt3_plan import PARTS, memory_bars

CONFIG = preset("tiny-decoder")


def make(mesh, **settings):
    return plan(CONFIG, MeshShape.parse(mesh), batch=8, **settings)


def test_bars_are_as_long_as_the_memory_and_the_limit_stands_across(tmp_path):
    limit = make("data=2").total - 1
    plans = [make("data=2", device_memory=limit), make("data=2,fsdp=2,tensor=2", remat=True, device_memory=limit)]
    figure = memory_bars(plans, title="Small")
    (ax,) = figure.axes
    drawn = [[bar.get_width() for bar in ax.patches if round(bar.get_y() + 0.31) == row] for row in range(2)]
    assert drawn == [list(plan.memory.values()) for plan in plans]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["data 2", "data 2, fsdp 2, tensor 2, remat"]
    assert ax.lines[0].get_xdata()[0] == limit
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [PARTS[part][0] for part in PARTS if any(part in plan.memory for plan in plans)]
    words = figure.get_label()
    assert words.startswith("Small: data 2 takes ")
    assert ", which does not fit; data 2, fsdp 2, tensor 2, remat takes " in words
    assert save(figure, tmp_path / "memory.png").stat().st_size > 1000


def test_the_script_of_the_figure_prints_every_mesh_and_draws_them(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "gpt3_plan.py"
    command = [sys.executable, str(script), "--figure", str(tmp_path / "plan.png")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[0] for row in rows if row[4] == "yes"] == [
        "data=16,fsdp=8,tensor=8",
        "data=1,fsdp=1024,tensor=1",
        "data=1,fsdp=128,tensor=8",
        "data=1,fsdp=128,tensor=8",
    ]
    assert (tmp_path / "plan.png").stat().st_size > 1000
