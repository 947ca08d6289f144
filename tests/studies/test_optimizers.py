"""The study of optimizers: seed 0 chooses, the other seeds are the test."""

import numpy as np
import pytest

from glassformer.studies import Rows, optimizers
from glassformer.studies.finding import compared
from glassformer.studies.measures import steps_to


def run(name, lr, seed, speed):
    at = list(range(15, 315, 15))
    row = {"optimizer": name, "lr": lr, "seed": seed, "diverged": False, "at": at, "step_ms": 1.0}
    return row | {"losses": (losses := [3 - speed * step / 300 for step in at]), "loss": losses[-1]}


def rows_with(muon):
    """Rate 2 is best for all with seed 0; rate 1 would be with the others."""
    speeds = dict.fromkeys(optimizers.TITLES, 1.0) | {"sgd": 0.1, "muon": muon}
    rates = {0: (0.5, 1.0, 0.8), 1: (1.0, 0.9, 0.5), 2: (0.9, 0.8, 0.5)}
    found = [run(name, lr, seed, share * speed) for name, speed in speeds.items() for seed, shares in rates.items()
             for lr, share in zip((1, 2, 3), shares, strict=True)]  # fmt: skip
    return Rows([*found, {"optimizer": "lion", "lr": 4, "seed": 0, "diverged": True}])


def test_steps_to_a_loss_are_compared_and_seed_0_chooses_the_rates():
    row = {"at": [10, 20, 30], "losses": [3.0, 2.0, 2.5]}
    np.testing.assert_array_equal(steps_to([row], 2.5), [15])
    np.testing.assert_array_equal(steps_to([row, row, {"diverged": True}], 3.5), [10, 10, np.inf])
    np.testing.assert_array_equal(steps_to([row], 1.0), [np.inf])
    target, tests = optimizers.compared(rows_with(2.0))
    assert target == pytest.approx(3 - 210 / 300)
    assert {name: runs.values("lr") for name, runs in tests.items()} == {name: [2] for name in tests}
    assert tests["adam"].values("seed") == [1, 2]

    [[adam, *others]] = compared(optimizers.STUDY, rows_with(2.0))
    assert (adam.setting, adam.result.mean) == ({"optimizer": "adam"}, pytest.approx(247.9, abs=0.1))
    verdicts = {one.setting["optimizer"]: one.verdict for one in others}
    assert verdicts == {"muon": "better", "adamw": "no clear difference", "lion": "no clear difference", "sgd": "worse"}
    assert [one.lacking for one in others if one.setting["optimizer"] == "sgd"] == [2]


def test_all_optimizers_have_as_many_rates_and_a_run_is_measured():
    points = optimizers.grid(False)
    point = {**optimizers.grid(True)[-1], "width": 16, "steps": 4, "eval_every": 2}
    found = optimizers.measure(point, 0)
    assert {len([1 for point in points if point["optimizer"] == name]) for name in optimizers.TITLES} == {5}
    assert found["at"] == [2, 4]
    assert found["losses"][-1] == found["loss"]
    assert found["step_ms"] > 0
