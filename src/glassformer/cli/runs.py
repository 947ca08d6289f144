"""`glassformer runs`: a list of runs."""

import os
from pathlib import Path
from typing import Any

import click

from ..runs.listing import RunSummary, list_runs
from .options import PATH, json_option
from .output import log, print_json, print_table
from .settings import default_text

COLUMNS = ("run", "task", "steps", ">loss", ">validation", "best", "when", "settings that differ")


@click.command()
@click.argument("folder", type=PATH, default=Path("runs"), help="Where the runs are.")
@json_option
def runs(folder: Path, json: bool) -> None:
    """List the runs in a folder, newest first: task, settings that differ, steps, losses, time."""
    found = list_runs(folder)
    if json:
        print_json({"folder": str(folder), "runs": [one.to_dict() for one in found]})
        return
    if not found:
        log(f"there are no runs in {folder}; start one with  glassformer train TASK --out {folder / 'NAME'}")
        return
    print_table(COLUMNS, [(*_cells(one), one.error or settings_text(one.changed)) for one in found])
    if len(found) == 1 and found[0].folder == folder:
        _print_record(found[0].record)


def _print_record(record: dict[str, Any]) -> None:
    """Print where and with which versions a run began."""
    if not record:
        log("this run has no record of the engine and versions that began it")
        return
    data = record.get("data")
    lines = {
        "started": record["started"],
        "engine": f"{record['engine']}, {record['cores']} cores, {record['platform']}{_kind(record)}",
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        "data": "drawn from the seed" if data is None else f"{data['source']} ({data['bytes']:,} bytes)",
        **({} if data is None else {"SHA-256": data["sha256"]}),
    }
    for name, text in lines.items():
        print(f"{name}\t{text}")
    for change in record.get("changes", ()):
        print(f"changed\tafter step {change['step']:,}: {changed_text(change)}")


def _kind(record: dict[str, Any]) -> str:
    return f" ({record['processor']})" if "processor" in record else ""


def changed_text(change: dict[str, Any]) -> str:
    """Write what had changed when a run was continued with --anyway."""
    pairs = {name: pair for name, pair in change.items() if name not in ("step", "when")}
    return ", ".join(f"{name} {before} → {now}" for name, (before, now) in pairs.items())


def _cells(one: RunSummary) -> tuple[str, ...]:
    when = one.when.strftime("%Y-%m-%d %H:%M")
    if one.error is not None:
        return str(one.folder), "broken", "", "", "", "", when
    steps = f"{one.step:,}" if one.step == one.steps else f"{one.step:,}/{one.steps:,}"
    best = "" if one.best_loss is None else f"{one.best_loss:.4f} at {one.best_step:,}"
    return str(one.folder), one.task, steps, number(one.loss), number(one.val_loss), best, when


def settings_text(settings: dict[str, Any]) -> str:
    """Write settings as they are typed; paths below the working directory are relative to it."""
    here = os.getcwd() + os.sep
    texts = {name: default_text(value).removeprefix(here) for name, value in settings.items()}
    return " ".join(f"{name}={text}" for name, text in texts.items())


def number(value: float | None) -> str:
    """Write a loss, or nothing if there is none."""
    return "" if value is None else f"{value:.4f}"
