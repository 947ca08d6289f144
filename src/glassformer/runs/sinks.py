"""Where a training session writes its steps, states and best parameters: a run folder, or memory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Tree
from ..core.errors import CheckpointError
from ..core.tree import flatten, tree_map
from ..training.checkpoint import BEST, LATEST, save_checkpoint
from ..training.loop import StepRecord
from ..training.trainer import COUNTERS, TrainingState, not_finite, refuse_to_save
from .folder import METRICS, FolderLock, read_metrics, write, write_config
from .judging import Judged, write_confidence
from .run import TrainingRun


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run. Nothing is written into one that is gone, or belongs to another session by now.

    lock   of the session that trains it, where this process has it
    """

    run: TrainingRun
    lock: FolderLock | None = field(default=None, compare=False)

    def write_config(self) -> None:
        """Write what the run is."""
        self._hold()
        write_config(self.run.folder, self.run.to_dict())

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dict for each step."""
        return self.run.metrics()

    def append(self, records: list[StepRecord]) -> None:
        """Add lines to the metrics file."""
        self._hold()
        lines = "".join(json.dumps(record.to_dict()) + "\n" for record in records)
        write(self.run.folder / METRICS, lines, append=True)

    def rewind_metrics(self, step: int) -> int:
        """Drop the lines of steps that will be taken again, and damaged ones; return how many lines were damaged."""
        self._hold()
        path = self.run.folder / METRICS
        lines, damaged = read_metrics(path)
        kept = [line for line in lines if line["step"] <= step]
        if damaged or len(kept) < len(lines):
            write(path, "".join(json.dumps(line) + "\n" for line in kept))
        return damaged

    def save(self, state: TrainingState, parts: Any = None) -> None:
        """Write the latest state; with `Trainer.parts`, this process writes those of its own devices."""
        if parts is None:
            self.save_as(self.run.folder, LATEST, state)
        else:
            parts.save(self.run.folder, state)

    def save_as(self, folder: Path, name: str, state: TrainingState) -> None:
        """Write a state and its recipe into this folder or one inside it."""
        self._write(folder, name, state, state.trees, recipe=self.run.recipe.to_dict())

    def save_best(self, state: TrainingState) -> None:
        """Write the parameters that count as the best so far."""
        self._write(self.run.folder, BEST, state, {"params": state.params})

    def load(self, name: str = BEST) -> Tree:
        """Return what was trained, the best so far, or the latest where there is no best yet."""
        return self.run.load_trained(name)

    def keep_confidence(self, judged: Sequence[Judged]) -> None:
        """Write how often the model is right, by how sure it is."""
        self._hold()
        write_confidence(self.run.folder, judged)

    def release(self) -> None:
        """Free the folder for other sessions."""
        if self.lock is not None:
            self.lock.release()

    def _write(self, folder: Path, name: str, state: TrainingState, trees: Tree, **meta: Any) -> None:
        refuse_to_save(not_finite(state), state.step)
        self._hold()
        counters = {name: getattr(state, name) for name in COUNTERS}
        # A folder that this session took is not made again, should it be moved away just now.
        save_checkpoint(folder, name, flatten(trees), {**counters, **meta}, make_folder=self.lock is None)

    def _hold(self) -> None:
        if self.lock is not None:
            self.lock.check_held()


class Memory:
    """The records of all steps and the best parameters of a session without a folder.

    Its state is that of the session alone. Batches and first parameters follow from the seed, so a run that is written
    later can be replayed.
    """

    lock = None

    def __init__(self) -> None:
        self.records: list[StepRecord] = []
        self.best: Tree | None = None

    def append(self, records: list[StepRecord]) -> None:
        """Remember steps."""
        self.records.extend(records)

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dict for each step."""
        return [record.to_dict() for record in self.records]

    def save(self, state: TrainingState, parts: Any = None) -> None:
        """Do nothing: the session holds the state, wherever its parts lie."""

    def save_best(self, state: TrainingState) -> None:
        """Keep the parameters that count as the best so far, in memory that no later step writes to."""
        self.best = tree_map(np.array, state.params)

    def load(self, name: str = BEST) -> Tree:
        """Return what was trained, the best so far."""
        if name != BEST or self.best is None:
            raise CheckpointError(f"no {name} parameters are kept yet", hint="wait for an evaluation")
        return self.best

    def keep_confidence(self, judged: Sequence[Judged]) -> None:
        """Do nothing: `judge` says it again."""

    def release(self) -> None:
        """Do nothing: no other process writes here."""
