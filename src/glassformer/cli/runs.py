"""`glassformer runs`: what has been trained."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ..runs.listing import Listed, list_runs
from .output import JsonOption, console, print_json, talk
from .screen import flowed
from .settings import default_text

COLUMNS = ("run", "task", "steps", "loss", "validation", "best", "when")
INDENT = 4


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
    if console().is_terminal:
        _print(found)
    else:
        for one in found:
            print("\t".join((*_cells(one), one.error or settings_text(one.changed))))
    if len(found) == 1 and found[0].folder == folder:
        _print_record(found[0].record)


def _print_record(record: dict[str, Any]) -> None:
    """Say where and with what one run began, line by line."""
    if not record:
        talk("it does not say by whom and with what it was begun")
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
    """Write what had changed when a run went on anyway."""
    pairs = {name: pair for name, pair in change.items() if name not in ("step", "when")}
    return ", ".join(f"{name} {before} → {now}" for name, (before, now) in pairs.items())


def _print(found: list[Listed]) -> None:
    """Print the figures of each run, and below the settings that differ from the defaults, or what is wrong.

    Figures stand below each other where a terminal has the room, and else below the name of their run.
    """
    out = console()
    rows = [COLUMNS, *map(_cells, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    wide = max(map(len, lines)) <= out.width
    if wide:
        out.print(lines[0], style="bold", markup=False)
    for line, one in zip(lines[1:], found, strict=True):
        heads, figures = ([Text(line)], []) if wide else _flowed(one, out.width)
        for head in heads:
            out.print(head, style="red" if one.error else "")
        for part in figures:
            _print_below(out, part)
        if below := one.error or settings_text(one.changed):
            _print_below(out, Text(below, style="dim"))


def _print_below(out: Console, text: Text) -> None:
    out.print(Padding(text, (0, 0, 0, INDENT)), soft_wrap=False)


def _flowed(one: Listed, width: int) -> tuple[list[Text], list[Text]]:
    """Return the name of a run, with its time, and its figures, each with its own name, in lines of a width."""
    folder, task, steps, *losses, when = _cells(one)
    named = [f"{name} {value}" for name, value in zip(COLUMNS[3:6], losses, strict=True) if value]
    figures = [task, *([f"{steps} steps"] if steps else []), *named]
    return list(flowed([folder, when], width)), list(flowed(figures, width - INDENT))


def _cells(one: Listed) -> tuple[str, ...]:
    when = one.when.strftime("%Y-%m-%d %H:%M")
    if one.error is not None:
        return str(one.folder), "broken", "", "", "", "", when
    steps = f"{one.step:,}" if one.step == one.steps else f"{one.step:,}/{one.steps:,}"
    best = "" if one.best_loss is None else f"{one.best_loss:.4f} at {one.best_step:,}"
    return str(one.folder), one.task, steps, number(one.loss), number(one.val_loss), best, when


def settings_text(settings: dict[str, Any]) -> str:
    """Write settings as one would type them; paths from here, where they are below."""
    here = os.getcwd() + os.sep
    texts = {name: default_text(value).removeprefix(here) for name, value in settings.items()}
    return " ".join(f"{name}={text}" for name, text in texts.items())


def number(value: float | None) -> str:
    """Write a loss; nothing where there is none."""
    return "" if value is None else f"{value:.4f}"
