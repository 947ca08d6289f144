"""TensorBoard event files, where the package is there and where it is not."""

import importlib.util
import json

import pytest

from oracles import require
from runs import command, options


@pytest.mark.filterwarnings("ignore")
def test_event_files_hold_the_figures_of_the_metrics(tmp_path):
    require("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    result = command(
        "train", "majority", *options("majority", eval_every=2), "--steps", 4, "--out", folder, "--tensorboard"
    )
    assert result.code == 0, result.err
    events = EventAccumulator(str(folder)).Reload()
    assert {"loss", "lr", "grad_norm", "val_loss", "accuracy"} <= set(events.Tags()["scalars"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "val_loss"):
        found = [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]
        assert found == [(line["step"], line[name]) for line in lines if name in line]


def test_without_the_package_one_is_told_before_anything_is_trained(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
    )
    result = command("train", "majority", "--out", tmp_path / "run", "--tensorboard")
    assert result.code == 2
    assert "event files need the tensorboard package" in result.err
    assert "glassformer[tensorboard]" in result.err
    assert not (tmp_path / "run").exists()
