"""`glassformer runs` and `compare`: a list of runs, and runs side by side."""

import os
from collections.abc import Sequence
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..core.errors import ConfigError
from ..core.format import escaped
from ..core.settings import check_known
from ..progress.display import waiting
from ..runs.folder import RECENT
from ..runs.listing import (
    Curves,
    RunSummary,
    curves_of,
    differing,
    figures_of,
    judged,
    list_runs,
    losses_by,
    samples_or_reason,
)
from ..runs.run import TrainingRun, open_run
from ..text import printable
from .commands import command
from .options import FOLDER, RUN, json_option, out_option, trust_option
from .output import log, print_json, print_table
from .settings import default_text

COLUMNS = ("run", "task", "steps", ">loss", ">validation", "best", "when", "settings that differ")
FIGURE = "losses"


@command("Train", "glassformer runs")
@click.argument("folder", type=FOLDER, default=Path("runs"), help="Where the runs are.")
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
    processor = f" ({record['processor']})" if "processor" in record else ""
    lines = {
        "started": record["started"],
        "engine": f"{record['engine']}, {record['cores']} cores, {record['platform']}{processor}",
        **({"BLAS": record["products"]} if "products" in record else {}),
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        "data": "drawn from the seed" if data is None else f"{data['source']} ({data['bytes']:,} bytes)",
        **({} if data is None else {"SHA-256": data["sha256"]}),
    }
    for name, text in lines.items():
        print(f"{name}\t{text}")
    for change in record.get("changes", ()):  # when the run was continued with --anyway
        pairs = {name: pair for name, pair in change.items() if name not in ("step", "when")}
        changed = ", ".join(f"{name} {before} → {now}" for name, (before, now) in pairs.items())
        print(f"changed\tafter step {change['step']:,}: {changed}")


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
    return " ".join(f"{name}={default_text(value).removeprefix(here)}" for name, value in settings.items())


def number(value: float | None) -> str:
    """Write a loss, or nothing if there is none."""
    return "" if value is None else f"{value:.4f}"


@command("Train", "glassformer compare runs/majority runs/text --out comparison")
@click.argument("runs", metavar="RUN RUN...", type=RUN, nargs=-1, help="Folders that `glassformer train` wrote.")
@out_option("a folder for a figure of the losses, light and dark (default: none is drawn)")
@click.option("--format", "form", metavar="TYPE", help="Format: png, svg or pdf (default: png).")
@click.option("--samples/--no-samples", default=True, help="Let each model answer some prompts.")
@json_option
@trust_option
def compare(runs: tuple[Path, ...], out: Path | None, form: str | None, samples: bool, json: bool) -> None:
    """Compare runs side by side: settings that differ, losses by step and by time, speed, samples, a figure."""
    if form is not None and out is None:
        raise ConfigError("--format is of the figure, and none is drawn", hint="add --out DIR")
    if len(runs) < 2 or len({path.resolve() for path in runs}) < len(runs):
        raise ConfigError("there is nothing to compare", hint="name two or more different runs")
    draw = _drawing(form or "png") if out is not None else None
    opened = [open_run(path) for path in runs]
    names = [path.resolve().name for path in runs]
    if len(set(names)) < len(names):
        names = [str(path) for path in runs]
    metrics = {name: run.metrics() for name, run in zip(names, opened, strict=True)}
    curves = [curves_of(name, lines) for name, lines in metrics.items()]
    answers = []
    with waiting("letting each model answer") as show:
        for number, run in enumerate(opened if samples else ()):
            show(number, len(opened), "models")
            answers.append(samples_or_reason(run))
    if json:
        print_json(_as_json(runs, opened, curves, answers, [] if draw is None else draw(metrics, out)))
        return
    _print_figures(names, opened)
    _print_settings(names, opened)
    _print_losses(names, curves)
    for name, said in zip(names, answers, strict=False):
        if isinstance(said, str):
            log(f"{name}: no samples: {said}")
        else:
            print_table(("prompt", "answer"), [tuple(map(escaped, pair)) for pair in said], title=f"{name} answers")
    if draw is None:
        log("--out DIR draws the losses")
    else:
        log(f"figure: {', '.join(map(str, draw(metrics, out)))}")


def _drawing(form: str) -> Any:
    """Return what draws the losses of runs into a folder; refuse an unknown format."""
    with waiting("loading matplotlib", compiles=False):
        from ..plots import FORMATS, loss_curves, save_themes
    check_known("there is no format", form, FORMATS)
    return lambda metrics, folder: save_themes(partial(loss_curves, metrics), folder, FIGURE, form=form)


def _as_json(
    paths: Sequence[Path],
    runs: Sequence[TrainingRun],
    curves: Sequence[Curves],
    answers: Sequence[Any],
    drawn: Sequence[Path],
) -> dict[str, Any]:
    both = zip(paths, runs, strict=True)
    about = [{"run": str(path), **figures_of(run), "record": run.provenance.to_dict()} for path, run in both]
    for one, said in zip(about, answers, strict=False):
        one["samples"] = said if isinstance(said, str) else [{"prompt": a, "answer": printable(b)} for a, b in said]
    return {
        "runs": about,
        "settings": {name: [_plain(value) for value in values] for name, values in differing(runs).items()},
        "loss_by_step": [{"step": step, "losses": values} for step, values in losses_by("steps", curves)],
        "loss_by_seconds": [{"seconds": round(s, 3), "losses": values} for s, values in losses_by("seconds", curves)],
        "figures": [str(path) for path in drawn],
    }


def _plain(value: Any) -> Any:
    if value is MISSING:
        return None
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)


def _print_figures(names: Sequence[str], runs: Sequence[TrainingRun]) -> None:
    rows: dict[str, list[str]] = {}
    for run in runs:
        found, record = figures_of(run), run.provenance
        best = "" if found["best_loss"] is None else f"{found['best_loss']:.4f} at step {found['best_step']:,}"
        cells = {
            "task": found["task"],
            "steps": f"{found['step']:,} of {found['steps']:,}",
            "parameters": f"{found['parameters']:,}",
            f"training loss (mean of the last {RECENT} steps)": number(found["recent_loss"]),
            "last validation loss": number(found["val_loss"]),
            "best validation loss": best,
            "right": "" if found["accuracy"] is None else f"{found['accuracy']:.2%}",
            "tokens trained on": f"{found['tokens']:,}",
            "seconds of training": f"{found['seconds']:,.1f}",
            "engine": f"{record.engine}, {record.cores} cores",
            "tokens/s": "" if found["tokens_per_second"] is None else f"{found['tokens_per_second']:,.0f}",
        }
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    lines = [(name, *values) for name, values in rows.items()]
    print_table(("", *(f">{name}" for name in names)), lines, title="Results")


def _print_settings(names: Sequence[str], runs: Sequence[TrainingRun]) -> None:
    found = differing(runs)
    if not found:
        log("all settings are the same")
        return
    rows = [
        (name, *("" if value is MISSING else default_text(value) for value in values)) for name, values in found.items()
    ]
    print_table(("setting", *names), rows, title="Settings that differ")


def _print_losses(names: Sequence[str], curves: Sequence[Curves]) -> None:
    kinds = {"validation" if judged(one) is one.validation else "training" for one in curves}
    kind = kinds.pop() if len(kinds) == 1 else "validation (else training)"
    columns = [f">{name}" for name in names]
    steps = [(f"{step:,}", *map(number, values)) for step, values in losses_by("steps", curves)]
    print_table((">step", *columns), steps, title=f"Loss by step ({kind})")
    found = losses_by("seconds", curves)
    places = 1 if found and found[-1][0] >= 100 else 2
    times = [(f"{time:,.{places}f}", *map(number, values)) for time, values in found]
    print_table((">seconds", *columns), times, title=f"Loss by time ({kind})")
