"""What `glassformer train --record` keeps: a few whole states, from which every other step can be computed again.

    recording/step-000000400.safetensors     the state after 400 steps, a checkpoint like latest.safetensors
    recording/from-000000700.safetensors     the state from which a run went on with something changed

Batches and dropout follow from the seed and the step number, so training from a kept state computes the very bits that
the run computed. Nothing needs to be kept but states to begin from: the more there are, the fewer steps lie between.

    kept = min(64, 40 MB / size of a state)      every = steps / (kept + 1), rounded up

The state before the first step is not kept: it is drawn from the seed, or read from the model that a run starts from.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ..cluster.collective import process, processes
from ..errors import ConfigError
from ..files import explained
from ..training.checkpoint import checkpoint_path, list_checkpoints
from ..training.state import TREES, TrainingState
from ..training.trainer import Trainer
from ..tree import flatten
from .run import Run

FOLDER = "recording"
BUDGET = 40_000_000
"""Bytes that the states of a run take at most."""
MOST = 64
"""States of a run at most."""

_NAME = re.compile(r"(step|from)-(\d{9})")


@dataclass(frozen=True)
class Recording:
    """The states that a run keeps, one every `every` steps."""

    run: Run
    every: int

    @property
    def folder(self) -> Path:
        """Folder of the states."""
        return self.run.folder / FOLDER

    def is_due(self, step: int) -> bool:
        """Tell whether to keep the state after a step; the last one is in the run folder."""
        return step % self.every == 0 and step < self.run.recipe.steps

    def keep(self, state: TrainingState, kind: str = "step") -> None:
        """Write a state."""
        if process() == 0:
            self.run.save_as(self.folder, f"{kind}-{state.step:09d}", state)

    def kept(self) -> dict[int, str]:
        """Return the steps whose states are there, in order, each with the name of its checkpoint."""
        matches = [match for match in map(_NAME.fullmatch, list_checkpoints(self.folder)) if match]
        # Of two states after one step, the one that the run continued from counts.
        found = sorted(matches, key=lambda match: (int(match[2]), match[1] == "from"))
        return {int(match[2]): match[0] for match in found}


def start_recording(run: Run, state: TrainingState) -> Recording:
    """Start the recording of a new run."""
    if processes() > 1:
        raise ConfigError("a run of several processes is not recorded", hint="leave --record out, or use one process")
    folder = run.folder / FOLDER
    with explained(folder):
        folder.mkdir(exist_ok=True)
    return Recording(run, spacing(state, run.recipe.steps))


def find_recording(run: Run, state: TrainingState) -> Recording | None:
    """Return the recording of a run, None where it has none."""
    return Recording(run, spacing(state, run.recipe.steps)) if (run.folder / FOLDER).is_dir() else None


def continue_recording(run: Run, trainer: Trainer, state: TrainingState, *, anew: bool) -> Recording | None:
    """Continue the recording of a run from a state, if it has one.

    States of later steps are removed, because the steps are taken again, and states that are now too close to each
    other. `anew` says that something changed: the state is then kept, since earlier steps no longer lead to it.
    """
    recording = find_recording(run, state)
    if recording is None:
        return None
    for step, name in recording.kept().items():
        close = name.startswith("step") and not recording.is_due(step)
        if (step > state.step or close) and process() == 0:
            path = checkpoint_path(recording.folder, name)
            with explained(path):
                path.unlink(missing_ok=True)
    if anew:
        recording.keep(trainer.take(state), "from")
    return recording


def spacing(state: TrainingState, steps: int) -> int:
    """Return the number of steps between kept states, so that all fit into the budget."""
    size = sum(array.nbytes for array in flatten({name: getattr(state, name) for name in TREES}).values())
    kept = min(MOST, BUDGET // max(size, 1))
    return -(-steps // (kept + 1))
