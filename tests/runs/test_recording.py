"""What a recording keeps: few states, within a budget, wherever a run cannot be followed without them."""

from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.runs import session as recording
from glassformer.runs.session import BUDGET, MOST, Recording, open_recording, spacing
from glassformer.runs.sinks import RunFolder
from glassformer.training.trainer import TrainingState
from runs import TINY, command


def state(numbers):
    moments = {"m": np.zeros(numbers, np.float32), "v": np.zeros(numbers, np.float32)}
    return TrainingState(0, {"w": np.zeros(numbers, np.float32)}, moments)


def test_the_states_of_a_model_of_800_000_parameters_fit_into_50_mb():
    every, run = spacing(state(800_000), 2000), SimpleNamespace(recipe=SimpleNamespace(steps=2000))
    kept = [step for step in range(1, 2001) if Recording(RunFolder(run), every).is_due(step)]
    assert kept == [400, 800, 1200, 1600]
    assert len(kept) * 3 * 4 * 800_000 <= BUDGET < 50_000_000


@pytest.mark.parametrize(("numbers", "steps", "every"), [(10, 2000, 31), (10, 20, 1), (10**7, 2000, 2000)])
def test_small_models_have_more_states_and_large_ones_none_but_the_first(numbers, steps, every):
    assert spacing(state(numbers), steps) == every
    assert steps // every <= MOST + 1


def test_a_run_of_several_processes_is_not_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "processes", lambda: 2)
    with pytest.raises(ConfigError, match="several processes is not recorded"):
        open_recording(RunFolder(SimpleNamespace(folder=tmp_path)), state(1), new=True)


def test_the_command_records_and_resume_takes_no_such_option(tmp_path):
    folder = str(tmp_path / "run")
    settings = [part for name, value in TINY["sort"].items() for part in ("--set", f"{name}={value}")]
    assert command("train", "sort", "--out", folder, "--steps", "4", "--record", "--json", *settings).code == 0
    assert [path.name for path in sorted((tmp_path / "run" / "recording").iterdir())] == [
        f"step-00000000{step}.safetensors" for step in (1, 2, 3)
    ]
    refused = command("train", "--resume", folder, "--record")
    assert refused.code != 0
    assert "--resume continues a run with its own settings" in refused.err
