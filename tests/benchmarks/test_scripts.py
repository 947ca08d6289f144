"""What benchmarks measure: the same work for all contenders, costs by formulas, and errors where a check fails."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import _gpu_check
from attention import Cost, cost, exponent, same_results, visible
from attention_length import draw
from glassformer.core.execution import MeshShape
from glassformer.engines.mesh.plan import plan
from glassformer.models import preset
from glassformer.plots import save
from gpt3_plan import PARTS, memory_bars
from peers.attention_steps import Jax, Ours, Torch, pattern_of
from peers.report import Bar, Check
from peers.steps import Floor, gradient_difference
from train_step import GRADIENT_LIMIT, LOSS_LIMIT, Setting, same_losses
from xla import xla_flags

MINUTE = Setting(layers=2, width=8, heads=2, length=4, batch=3, vocab=5)


def test_eager_pytorch_computes_the_same_step(torch):
    found = gradient_difference(engine="numpy", **asdict(MINUTE))
    assert found["loss"] < LOSS_LIMIT
    assert found["gradients"] < GRADIENT_LIMIT


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_floor_multiplies_as_much_in_any_number_of_shards(shards, monkeypatch):
    done = []
    multiply = np.matmul
    flops = lambda a, b: 2 * a.size * b.shape[-1]  # noqa: E731
    monkeypatch.setattr(np, "matmul", lambda a, b, out: done.append(flops(a, b)) or multiply(a, b, out=out))
    Floor(shards=shards, **asdict(MINUTE)).step()
    N, D, T, L, V = 12, 8, 4, 2, 5
    forward = L * (N * 12 * D * D + 2 * 3 * T * T * D) + N * D * V
    assert sum(done) == 2 * 3 * forward


def test_losses_that_differ_and_figures_that_are_no_numbers_are_found():
    facts = {"A": {"losses": [2.0, 1.5, 1.25]}, "B": {"losses": [2.0, 1.5]}, "products": {"losses": []}}
    assert same_losses(facts).ok
    facts["C"] = {"losses": [2.0, 1.5003]}
    check = same_losses(facts)
    assert not check.ok
    assert check.error == pytest.approx(2e-4)

    assert not Bar("speed", float("nan"), 1.2, at_most=True).ok
    assert not Bar("speed", float("nan"), 1.2).ok
    assert not Check("losses", float("nan"), 1e-4).ok


SIZES = {"lengths": [9, 16], "heads": 2, "channels": 4}


def test_all_contenders_compute_the_same(torch, jax):
    contenders = [Torch(**SIZES), Jax(**SIZES)]
    contenders += [Ours(way=way, engine="cpu", **SIZES) for way in ("tiled", "dense", "whole")]
    for contender in contenders:
        contender.step()
    check = same_results({str(i): contender.facts() for i, contender in enumerate(contenders)})
    assert check.ok, check.error


@pytest.mark.parametrize("way", ["tiled", "window", "strided"])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_pairs_are_counted_as_the_mask_shows_them(way, length):
    assert visible(way, length) == int(pattern_of(way, length).dense(length).sum())


def test_costs_follow_the_formulas_and_the_exponent_is_the_slope():
    pairs = 2 * 10  # two heads; 1 + 2 + 3 + 4 pairs in each
    assert cost("dense", 4, heads=2, channels=8) == Cost(pairs, 32 * pairs, 64 * pairs, 4 * (4 * 2 * 4 * 8 + 2 * 16))
    assert cost("tiled", 4, heads=2, channels=8) == Cost(pairs, 32 * pairs, 80 * pairs, 4 * (4 * 2 * 4 * 8 + 2 * 4))
    lengths = [128, 256, 1024]
    assert exponent(lengths, [3e-9 * length**1.5 for length in lengths]) == pytest.approx(1.5)


def test_time_and_memory_are_drawn_side_by_side_on_logarithmic_scales():
    rows = [
        {"way": "dense", "length": length, "seconds": {"median": length / 1e4}, "grown_bytes": 8.0 * length}
        for length in (128, 256)
    ]
    figure = draw({"exponents": {"dense": {"seconds": 2.0}}, "rows": rows})
    time, memory = figure.axes
    assert {time.get_xscale(), time.get_yscale(), memory.get_yscale()} == {"log"}
    assert [line.get_label() for line in time.lines] == ["dense: time like $T^{2.00}$"]
    assert [list(line.get_ydata()) for line in memory.lines] == [[1024.0, 2048.0]]
    assert "dense takes 0.0256 s at 256 positions" in figure.get_label()


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


@pytest.fixture
def errors(monkeypatch):
    """What each part finds: nothing wrong, until a test says otherwise."""
    found = dict.fromkeys(("gradient", "step", "attention", "kernel"), 0.0)
    for name in found:
        monkeypatch.setattr(_gpu_check, f"_{name}_error", lambda *_, name=name: found[name])
    return found


@pytest.mark.parametrize("part", ["gradient", "step", "attention", "kernel", None])
@pytest.mark.parametrize("error", [0.5, np.nan])
def test_what_is_not_within_its_limit_is_an_error(part, error, errors, jax, monkeypatch, capsys):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    if part is None:
        _gpu_check.check(Namespace())
    else:
        errors[part] = error
        with pytest.raises(SystemExit, match="not within the limit: "):
            _gpu_check.check(Namespace())
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 10


def test_attention_that_is_not_fused_is_an_error(jax):
    with pytest.raises(AssertionError, match="cuDNN's pair was not called"):
        _gpu_check._attention_error()


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_generate.py"
BARE = """
import os, runpy, sys
sys.modules |= {"threadpoolctl": None, "babel": None, "numba": None, "rich": None}  # as if they were not installed
sys.path.insert(0, os.path.dirname(sys.argv[1]))
sys.argv = [sys.argv[1], "--tiny", "--rounds", "1", "--batch", "2"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_it_prints_one_line_of_json_for_each_row(torch, jax):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": xla_flags()}
    command = [sys.executable, "-c", BARE, SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours, peer, last = map(json.loads, done.stdout.splitlines())
    assert (ours["contender"], peer["contender"]) == ("glassformer jax", "PyTorch")
    for row in (ours, peer):
        assert (row["batch"], row["prompt"], row["new"], row["dtype"]) == (2, 12, 12, "float32")
        assert row["tokens_per_second"] > 0
        assert row["same_tokens"] == 1.0
    assert set(last["compilations"].values()) == {1}


BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
# In a process of its own, since the campaign registers parts. What is spoiled is what reaches the model that writes.
PROGRAM = """
import changes, _change_cases, _change_judge
from glassformer.interpret import add

changes._quiet()
written = _change_judge.written
spoiled = {
    "not fired": lambda case, chosen: written(case, []),
    "different": lambda case, chosen: written(case, [*chosen, add("logits", 0.01, feature=0)]),
}
tried = 0
for number in range(25):
    case = _change_cases.case(number, {"numpy": 1}, 0)
    if not case.numbers or _change_judge.verdict(case)[0] != "same":
        continue
    tried += 1
    for verdict, _change_judge.written in spoiled.items():
        found = _change_judge.verdict(case)
        assert found[0] == verdict, (verdict, found, str(case))
    _change_judge.written = written
assert tried >= 5, tried
"""


def test_a_change_that_is_left_out_or_another_one_is_noticed():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
