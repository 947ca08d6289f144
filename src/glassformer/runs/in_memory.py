"""A run without a folder: what the steps did, and the best parameters, stay in memory."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Tree
from ..config import TransformerConfig
from ..errors import CheckpointError
from ..execution import PLAIN, Execution, separated
from ..models import Model
from ..training.checkpoint import BEST
from ..training.loop import StepRecord
from ..training.parametrization import EVERYTHING, Parametrization
from ..training.recipe import Recipe
from ..training.state import TrainingState, final_params
from ..tree import tree_map
from .run import Run


@dataclass(frozen=True)
class MemoryRun(Run):
    """A run whose session writes no file.

    records   of all steps so far
    kept      the parameters that count as the best so far, under the name of their checkpoint
    given     a model of the user's own class, which is trained in place of the config's
    """

    records: list[StepRecord] = field(default_factory=list)
    kept: dict[str, Tree] = field(default_factory=dict)
    given: Model | None = None

    def build(self, execution: Execution) -> Model:
        """Return the model that is trained, of the user's own class where there is one."""
        if self.given is None:
            return super().build(execution)
        return replace(self.given, config=self.config, execution=execution)  # type: ignore[type-var]

    def append(self, records: list[StepRecord]) -> None:
        """Remember steps."""
        self.records.extend(records)

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dict for each step."""
        return [record.to_dict() for record in self.records]

    def save(self, state: TrainingState) -> None:
        """Do nothing: the session holds the state."""

    def save_best(self, state: TrainingState) -> None:
        """Remember the parameters that count as the best so far, in memory that no later step writes to."""
        self.kept[BEST] = tree_map(np.array, final_params(state, self.recipe))

    def load_params(self, name: str = BEST, *, parametrization: Parametrization | None = None) -> Tree:
        """Return the best parameters of the model so far, adapters merged."""
        if name not in self.kept:
            raise CheckpointError(f"no {name} parameters are kept yet", hint="wait for an evaluation")
        return (EVERYTHING if parametrization is None else parametrization).effective(self.kept[name])


def memory_run(
    name: str,
    config: TransformerConfig,
    recipe: Recipe,
    *,
    execution: Execution | None = None,
    settings: dict[str, Any] | None = None,
    given: Model | None = None,
) -> MemoryRun:
    """Return a new run of the task `name`, which trains the `given` model, if any; see `start.create_run`."""
    how = (execution or PLAIN).replace(**separated(settings or {})[1])
    run = MemoryRun(
        folder=Path(name),
        task_name=name,
        task_options={},
        config=config,
        recipe=recipe,
        tokenizer={},
        execution=how,
        under_jax=execution is not None,
        given=given,
    )
    run.check()
    if recipe.shards is None:
        shards = run.engine.shards(config, recipe.batch // recipe.accumulate)
        run = replace(run, recipe=replace(recipe, shards=shards))
    return run
