"""Whether a run that goes on is still the same: data, engine, versions, platform and recipe, as it began with them.

What differs is refused. Where someone goes on anyway, it is said, and kept in the run's record.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..cluster.collective import process
from ..data import Task
from ..errors import CheckpointError, DataError
from ..training.checkpoint import LATEST, read_meta
from .record import Record, read_record
from .run import Run

MAY_CHANGE = {"steps", "decay_steps"}
"""What of a recipe `--steps` changes."""
OF_DATA = ("data", "examples", "first batch")


class Comparison(NamedTuple):
    """What a run has now, and what of it was something else: by name, as it was and as it is."""

    now: Record | None
    found: dict[str, tuple[Any, Any]]
    notes: list[str]

    def noted(self, run: Run, step: int) -> Run:
        """Return the run with what differs from `step` on in its record."""
        if not self.found or self.now is None or run.record is None:
            return run
        change = {"step": step, "when": self.now.started, **{name: list(pair) for name, pair in self.found.items()}}
        record = replace(self.now, started=run.record.started, changes=(*run.record.changes, change))
        return replace(run, record=record)


def compared(run: Run, task: Task, *, anyway: bool = False) -> Comparison:
    """Compare a run with what it began with; refuse to go on with anything else, unless `anyway`.

    Of several processes, the first one compares; the others look at their data.
    """
    if run.record is None:
        return Comparison(None, {}, [])
    if process() != 0:
        if not anyway:
            run.check_data()
        return Comparison(None, {}, [])
    data = read_record(run.task_name, run.task_options.get("data"))
    now = Record.now(run.engine.name, preset=run.record.preset, data=data).reading(task.train, run.recipe)
    recipe = read_meta(run.folder, LATEST).get("recipe", {})
    found = {**_differing(run.record, now), **_other_recipe(recipe, run.recipe.to_dict())}
    if found and not anyway:
        raise _refusal(run, found)
    notes = []
    if run.record.cores != now.cores and not run.under_jax:
        if anyway:
            found["cores"] = (run.record.cores, now.cores)
        else:
            notes.append(
                f"it goes on as with {run.record.cores} cores, as it began, to the same bits; {now.cores} are here"
            )
    if found:
        notes.append(f"going on anyway, and last digits will differ: {_said(found)}")
    return Comparison(now, found, notes)


def _differing(before: Record, now: Record) -> dict[str, tuple[Any, Any]]:
    """Return what differs; what was not recorded is not asked for."""
    pairs = {
        "data": (before.data and before.data.sha256[:12], now.data and now.data.sha256[:12]),
        "examples": (before.examples, now.examples),
        "first batch": (before.first and before.first[:12], now.first and now.first[:12]),
        "engine": (before.engine, now.engine),
        "platform": (before.platform, now.platform),
        "processor": (before.processor, now.processor),
    }
    for package, version in before.versions.items():
        pairs[package] = _counting(package, version), _counting(package, now.versions.get(package))
    return {name: pair for name, pair in pairs.items() if pair[0] is not None and pair[0] != pair[1]}


def _counting(package: str, version: str | None) -> str | None:
    """Return the part of a version that may matter: corrections of Python itself change no number."""
    return version if version is None or package != "python" else ".".join(version.split(".")[:2])


def _other_recipe(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return in which settings the recipe is another than the one that the last checkpoint came about by."""
    shared = [name for name in before if name in now and name not in MAY_CHANGE]
    return {name: (before[name], now[name]) for name in shared if before[name] != now[name]}


def _refusal(run: Run, found: Mapping[str, tuple[Any, Any]]) -> CheckpointError | DataError:
    anyway = "or go on with it by --anyway, which the run will remember"
    if any(name in found for name in OF_DATA):
        known = None if run.record is None else run.record.data
        what, restore = "what is drawn now", "restore what it is drawn from"
        if known is not None:
            what, restore = known.source, f"restore what had SHA-256 {known.sha256[:12]}…"
        fact = f"the data of {run.folder} has changed: {what} is not what it was trained on"
        return DataError(fact, hint=f"{restore}, train anew, {anyway}")
    restore = f"use --engine {found['engine'][0]}" if "engine" in found else "restore what it began with"
    return CheckpointError(
        f"{run.folder} would not go on to the same bits: {_said(found)}", hint=f"{restore}, {anyway}"
    )


def _said(found: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in found.items())
