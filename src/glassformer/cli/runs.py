"""`glassformer runs`: what has been trained."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..runs.listing import Listed, list_runs
from .output import JsonOption, console, print_json, table, talk
from .settings import default_text

COLUMNS = ("run", "task", "differs from the defaults in", ">steps", ">loss", ">validation", ">best", "when")


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the runs are.")] = Path("runs"),
    json: JsonOption = False,
) -> None:
    """List the runs in a folder: task, settings that differ, steps, losses, when; the newest first."""
    found = list_runs(folder)
    if json:
        print_json({"folder": str(folder), "runs": [one.to_dict() for one in found]})
        return
    if not found:
        talk(f"there are no runs in {folder}; train one with: glassformer train TASK --out {folder / 'NAME'}")
        return
    out = console()
    if not out.is_terminal:
        for one in found:
            print("\t".join(_cells(one)))
        return
    shown = table(*COLUMNS)
    for column in shown.columns:
        column.overflow = "fold"
    for one in found:
        shown.add_row(*_cells(one), style="red" if one.error else "")
    out.print(shown, soft_wrap=False)


def _cells(one: Listed) -> tuple[str, ...]:
    when = one.when.strftime("%Y-%m-%d %H:%M")
    if one.error is not None:
        return str(one.folder), "broken", one.error, "", "", "", "", when
    steps = f"{one.step:,}" if one.step == one.steps else f"{one.step:,}/{one.steps:,}"
    best = "" if one.best_loss is None else f"{one.best_loss:.4f} at {one.best_step:,}"
    changed = settings_text(one.changed)
    return str(one.folder), one.task, changed, steps, number(one.loss), number(one.val_loss), best, when


def settings_text(settings: dict[str, Any]) -> str:
    """Write settings as one would type them."""
    return " ".join(f"{name}={default_text(value)}" for name, value in settings.items())


def number(value: float | None) -> str:
    """Write a loss; nothing where there is none."""
    return "" if value is None else f"{value:.4f}"
