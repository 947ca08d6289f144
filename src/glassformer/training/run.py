"""A run folder: what was trained, how, what came of it.

config.json          task, model config, recipe and tokenizers; the model it started from, where it is fine-tuned
metrics.jsonl        one line per step
latest.safetensors   everything needed to continue bit for bit
best.safetensors     the parameters with the lowest validation loss

Where only adapters are trained, beside the frozen parameters of another model, the checkpoints hold the adapters alone.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Tree
from ..config import TransformerConfig, config_from_dict
from ..data import TASKS, Task, build_task
from ..errors import CheckpointError, ConfigError, DataError
from ..models import Model, build
from ..parallel import suitable_shards
from ..parallel.mesh import MeshShape
from ..parallel.together import first_before_others
from ..tree import check_same, flatten, tree_map, unflatten
from .base import Base
from .checkpoint import BEST, LATEST, checkpoint_path, load_checkpoint, save_checkpoint
from .execution import Execution
from .loop import StepRecord, TrainingState, final_params, start
from .lora import Adapted
from .parametrization import WHOLE, Parametrization
from .recipe import Recipe
from .sharded_files import check_shared

CONFIG = "config.json"
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Run:
    """A run folder and what its config.json says."""

    folder: Path
    task_name: str
    task_options: dict[str, Any]
    config: TransformerConfig
    recipe: Recipe
    tokenizer: dict[str, Any]
    target_tokenizer: dict[str, Any] | None = None
    base: Base | None = None
    execution: Execution | None = None  # how the engine jax computes it; None: another engine does

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return build(self.config)

    def on_mesh(self, mesh: MeshShape) -> Run:
        """Return the same run on other devices, from now on."""
        assert self.execution is not None
        execution = replace(self.execution, mesh=mesh)
        execution.check(self.config, self.recipe)
        run = replace(self, execution=execution)
        with first_before_others("mesh") as first:
            if first:
                _write_config(run)
        return run

    def task(self) -> Task:
        """Build the task anew: its data, tokenizers and metric; refuse data that has another vocabulary by now."""
        options = dict(self.task_options)
        if self.base is not None and takes_lexicon(self.task_name):
            options["lexicon"] = self.base.lexicon(self.tokenizer, self.target_tokenizer)
        task = build_task(self.task_name, **options)
        if _tokenizers(task) != (self.tokenizer, self.target_tokenizer):
            raise DataError(
                f"the data of {self.folder} has changed: its vocabulary is not the one this model was trained on",
                hint="restore the data, or train anew",
            )
        return task

    def parametrization(self) -> Parametrization:
        """Return what is trained; adapters need the model beside which they stand, which is read again."""
        if self.base is None or self.base.lora is None:
            return WHOLE
        params = self.base.read_params()
        check_same(params, self.model.specs())
        return Adapted(params, self.base.lora)

    def load_params(self, name: str = BEST, *, parametrization: Parametrization | None = None) -> Tree:
        """Return trained parameters of the model, adapters merged: the best, or the latest where there is no best yet.

        A `parametrization` that is at hand already saves reading the model that adapters stand beside.
        """
        if name == BEST and not checkpoint_path(self.folder, BEST).is_file():
            name = LATEST
        arrays = load_checkpoint(self.folder, name).arrays
        prefix = "ema.average." if any(key.startswith("ema.average.") for key in arrays) else "params."
        params = unflatten({k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)})
        specs = self.trained_specs()
        params = _with_empty_parts(params, specs)
        check_same(params, specs)
        return (self.parametrization() if parametrization is None else parametrization).effective(params)

    def first_params(self) -> Tree | None:
        """Return what is trained before the first step, where training starts from a model; None: it is drawn anew."""
        if self.base is None:
            return None
        if self.base.lora is not None:
            return self.base.lora.init(self.model.specs(), self.recipe.seed)
        params = self.base.read_params()
        check_same(params, self.model.specs())
        return params

    def load_state(self) -> TrainingState:
        """Return the latest state, to continue from; the first one where no checkpoint was written yet."""
        if not checkpoint_path(self.folder, LATEST).is_file():
            return start(self.model, self.recipe, self.first_params())
        arrays, meta = load_checkpoint(self.folder, LATEST)
        trees = {part: _subtree(arrays, part) for part in ("params", "optimizer", "ema")}
        scaling = _subtree(arrays, "scaling") or None
        # Names and shapes are compared, so zeros will do.
        fresh = start(
            self.model, self.recipe, tree_map(lambda spec: np.zeros(spec.shape, np.float32), self.trained_specs())
        )
        check_same(trees, {"params": fresh.params, "optimizer": fresh.optimizer, "ema": fresh.ema})
        return TrainingState(
            step=meta["step"],
            params=_with_empty_parts(trees["params"], fresh.params),
            optimizer=_with_empty_parts(trees["optimizer"], fresh.optimizer),
            ema=None if fresh.ema is None else _with_empty_parts(trees["ema"], fresh.ema),
            best=meta["best"],
            stale=meta["stale"],
            refused=meta["refused"],
            scaling=scaling,
        )

    def save(self, state: TrainingState) -> None:
        """Write the latest state."""
        trees = {"params": state.params, "optimizer": state.optimizer, "ema": state.ema, "scaling": state.scaling}
        save_checkpoint(self.folder, LATEST, flatten(trees), _meta(state))

    def save_best(self, state: TrainingState) -> None:
        """Write the parameters that count as the best so far."""
        save_checkpoint(self.folder, BEST, flatten({"params": final_params(state, self.recipe)}), _meta(state))

    def trained_specs(self) -> Tree:
        """Return the shapes of what is trained."""
        specs = self.model.specs()
        return specs if self.base is None or self.base.lora is None else self.base.lora.specs(specs)

    def append(self, record: StepRecord) -> None:
        """Add one line to the metrics file."""
        path = self.folder / METRICS
        with _explained(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.to_dict()) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Read the metrics file; a last line cut off by a crash is left out."""
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return [line for line in map(_parsed, lines) if line is not None]

    def rewind_metrics(self, step: int) -> None:
        """Forget the lines of steps that will be taken again."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        _write(self.folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept))


def create_run(
    folder: Path,
    task: Task,
    options: dict[str, Any],
    config: TransformerConfig,
    recipe: Recipe,
    base: Base | None = None,
    execution: Execution | None = None,
) -> Run:
    """Make a new run folder; refuse one that holds a run already. Of several processes, the first one makes it."""
    run = Run(folder, task.name, options, config, recipe, *_tokenizers(task), base, execution)
    with first_before_others("run folder") as first:
        return _created(run) if first else _followed(run)


def _created(run: Run) -> Run:
    folder, recipe = run.folder, run.recipe
    if _is_taken(folder):
        resume = f"continue it with --resume {folder}, or " if (folder / CONFIG).is_file() else ""
        raise ConfigError(f"{folder} exists already", hint=f"{resume}choose another --out")
    if run.execution is not None:
        run.execution.check(run.config, recipe)
    if recipe.shards is None:
        shards = suitable_shards(run.config, recipe.batch // recipe.accumulate)
        run = replace(run, recipe=replace(recipe, shards=shards))
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _write_config(run)
    return run


def _followed(own: Run) -> Run:
    """Return the run that the first process made; refuse to train anything else together with it."""
    check_shared(own.folder / CONFIG)
    run = open_run(own.folder)
    have, want = (flatten(json.loads(json.dumps(_content(each)))) for each in (own, run))
    may_differ = {"recipe.shards", "task.options.data"}  # each machine has its own cores, and its own paths
    for name in [*want, *have]:
        if name not in may_differ and not name.startswith("base.") and have.get(name) != want.get(name):
            raise ConfigError(
                f"this worker was started with {name} = {have.get(name)!r}, worker 0 with {want.get(name)!r}",
                hint="start all workers with the same command and the same data",
            )
    return run


def _write_config(run: Run) -> None:
    _write(run.folder / CONFIG, json.dumps(_content(run), indent=2, ensure_ascii=False) + "\n")


def _content(run: Run) -> dict[str, Any]:
    return {
        "format": 1,
        "task": {"name": run.task_name, "options": run.task_options},
        "model": run.config.to_dict(),
        "recipe": run.recipe.to_dict(),
        "tokenizer": run.tokenizer,
        "target_tokenizer": run.target_tokenizer,
        **({} if run.base is None else {"base": run.base.to_dict()}),
        **({} if run.execution is None else {"jax": run.execution.to_dict()}),
    }


def open_run(folder: str | Path) -> Run:
    """Read a run folder."""
    folder = Path(folder)
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is not a run folder: it has no {CONFIG}", hint="pass the folder that `glassformer train` wrote"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Run(
            folder=folder,
            task_name=content["task"]["name"],
            task_options=content["task"]["options"],
            config=config_from_dict(content["model"]),
            recipe=Recipe.from_dict(content["recipe"]),
            tokenizer=content["tokenizer"],
            target_tokenizer=content["target_tokenizer"],
            base=Base.from_dict(content["base"]) if "base" in content else None,
            execution=Execution.from_dict(content["jax"]) if "jax" in content else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint="restore it from a copy") from error


def takes_lexicon(task_name: str) -> bool:
    """Tell whether a task can be learned with the vocabulary of a model that exists already."""
    return "lexicon" in inspect.signature(TASKS[task_name]).parameters


def _tokenizers(task: Task) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return both tokenizers as JSON gives them back."""
    written = [None if known is None else known.to_dict() for known in (task.tokenizer, task.target_tokenizer)]
    read = json.loads(json.dumps(written))
    return read[0], read[1]


def _meta(state: TrainingState) -> dict[str, Any]:
    return {"step": state.step, "best": state.best, "stale": state.stale, "refused": state.refused}


def _subtree(arrays: dict[str, Any], part: str) -> Tree:
    return unflatten({k.removeprefix(part + "."): v for k, v in arrays.items() if k.startswith(part + ".")})


def _with_empty_parts(tree: Tree, like: Tree) -> Tree:
    """Put back parts without arrays, such as a tied head, which a file of arrays cannot hold."""
    if isinstance(like, dict):
        return {name: _with_empty_parts(tree.get(name, {}), part) for name, part in like.items()}
    if isinstance(like, list):
        return [_with_empty_parts(a, b) for a, b in zip(tree, like, strict=True)]
    return tree


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_taken(folder: Path) -> bool:
    """Tell whether something stands in the way of a new run; leftovers of a killed process do not."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.suffix != ".partial" for path in folder.iterdir())


def _write(path: Path, text: str) -> None:
    """Replace a small text file in one step."""
    partial = path.with_name(path.name + ".partial")
    with _explained(path):
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that says what is left."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise CheckpointError(
            f"could not write {path}: {reason}; the checkpoints are unchanged", hint="check the path and the disk"
        ) from error
