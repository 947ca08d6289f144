"""The studies cost and scaling: their fits find exponents that are known, and each measures one small point."""

import json
import math

import numpy as np
import pytest

from glassformer.core.errors import ConfigError, DataError
from glassformer.studies import Rows, cost, run_study, scaling


@pytest.fixture(autouse=True)
def engine(numpy_engine):
    """Studies run on the engine numpy, which compiles nothing."""


def test_an_exponent_is_found_with_its_error():
    rng = np.random.default_rng(0)
    rows = Rows(
        {"n": n, "t": 1e-6 * n**2 * math.exp(rng.normal() / 50)} for n in (50, 400, 800, 1600, 3200) for _ in range(3)
    )
    value, error = cost.exponent(rows, "n", "t")
    assert abs(value - 2) < 3 * error < 0.1


@pytest.mark.parametrize("way", ["dense", "tiled", "windowed"])
def test_cost_measures_attention_in_each_way(way):
    found = cost.measure({"axis": "length", "way": way, "length": 50}, 0)
    assert min(found["time"], found["memory"]) > 0
    assert found["flops"] == 12 * 50 * 50 * 32


def test_cost_predicts_the_memory_of_a_step():
    point = {"axis": "layers", "length": 32, "width": 32, "layers": 2, "heads": 2}
    found = cost.measure(point, 0)
    assert 0.5 < found["memory"] / found["bytes"] < 3


def measurements(path, exponent=0.4):
    """Losses whose best size is 100 · C^exponent, exactly."""
    rows = []
    for budget in (1e15, 1e16, 1e17):
        best = 100 * budget**exponent
        for factor in (0.25, 0.5, 1, 2, 4):
            rows.append({"parameters": best * factor, "compute": budget, "loss": 3 + 0.1 * math.log(factor) ** 2})
    path.write_text(json.dumps(rows))
    return path


def test_scaling_finds_the_exponent_of_a_file_or_says_that_no_size_is_best(tmp_path):
    rows = scaling.rows_from(measurements(tmp_path / "runs.json"))
    value, low, high = scaling.exponents(rows)
    assert low <= value <= high
    assert value == pytest.approx(0.4, abs=1e-6)
    result = run_study("scaling", source=tmp_path / "runs.json", out=tmp_path / "out", figures=False, show=False)
    assert "C^0.40" in result.findings[0]

    falling = [{"parameters": n, "tokens": 1e6 / n, "loss": 1 / n} for n in (1, 2, 4, 8)]
    (tmp_path / "runs.json").write_text(json.dumps(falling))
    assert "No exponent" in scaling.finding(scaling.rows_from(tmp_path / "runs.json"))[0]


@pytest.mark.parametrize("text", ["", "{}", "[]", "[3]", '[{"parameters": 3, "loss": 1}]', '[{"parameters": "a"}]'])
def test_a_file_without_measurements_is_refused(tmp_path, text):
    (tmp_path / "runs.json").write_text(text)
    with pytest.raises(DataError, match="runs"):
        scaling.rows_from(tmp_path / "runs.json")


def test_every_point_of_scaling_can_be_trained_and_one_is():
    points = scaling.STUDY.points(quick=True)
    assert {point["budget"] for point in points} == {4e9, 1.2e10}
    found = scaling.measure({**points[0], "steps": 2, "eval_every": 2, "warmup": 0}, 0)
    assert found["tokens"] == 2 * 8 * 64
    assert math.isfinite(found["loss"])
    with pytest.raises(ConfigError, match="steps"):
        scaling.STUDY.check({**points[0], "steps": -1})
