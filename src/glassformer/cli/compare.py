"""`glassformer compare`: runs side by side."""

from collections.abc import Sequence
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..errors import ConfigError
from ..runs.comparison import Curves, by_step, by_time, curves_of, differing, figures_of, judged, samples_or_reason
from ..runs.listing import recorded
from ..runs.run import Run, open_run
from ..settings import check_known
from ..text import printable
from .output import JsonOption, console, print_json, table, talk
from .settings import default_text

FIGURE = "losses"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN …", help="Folders that `glassformer train` wrote.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the figure, light and dark.")] = Path(
        "comparison"
    ),
    form: Annotated[str, typer.Option("--format", help="Of the figure: png, svg or pdf.")] = "png",
    samples: Annotated[bool, typer.Option(help="Let each model answer some prompts.")] = True,
    json: JsonOption = False,
) -> None:
    """Compare runs side by side: settings that differ, losses by step and by time, speed, samples, a figure."""
    from ..plots import FORMATS, save_themes
    from ..plots.compare import loss_comparison

    check_known("there is no format", form, FORMATS)
    if len(runs) < 2 or len({path.resolve() for path in runs}) < len(runs):
        raise ConfigError("there is nothing to compare", hint="name two or more different runs")
    opened = [open_run(path) for path in runs]
    names = _names(runs)
    curves = [curves_of(name, run.metrics()) for name, run in zip(names, opened, strict=True)]
    answers = [samples_or_reason(run) for run in opened] if samples else []
    paths = save_themes(partial(loss_comparison, curves), out, FIGURE, form=form)
    if json:
        print_json(_as_json(runs, opened, curves, answers, paths))
        return
    screen = console()
    _print_figures(screen, names, opened)
    _print_settings(screen, names, opened)
    _print_losses(screen, names, curves)
    for name, said in zip(names, answers, strict=False):
        _print_samples(screen, name, said)
    talk(f"figure: {', '.join(map(str, paths))}")


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the last part of each path, or all of it where two would be called the same."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _as_json(
    paths: Sequence[Path], runs: Sequence[Run], curves: Sequence[Curves], answers: Sequence[Any], drawn: Sequence[Path]
) -> dict[str, Any]:
    about = [
        {"run": str(path), **figures_of(run), "record": recorded(run)} for path, run in zip(paths, runs, strict=True)
    ]
    for one, said in zip(about, answers, strict=False):
        one["samples"] = said if isinstance(said, str) else [{"prompt": a, "answer": printable(b)} for a, b in said]
    return {
        "runs": about,
        "settings": {name: [_plain(value) for value in values] for name, values in differing(runs).items()},
        "loss_by_step": [{"step": step, "losses": values} for step, values in by_step(curves)],
        "loss_by_seconds": [{"seconds": round(time, 3), "losses": values} for time, values in by_time(curves)],
        "figures": [str(path) for path in drawn],
    }


def _plain(value: Any) -> Any:
    if value is MISSING:
        return None
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)


def _print_figures(out: Console, names: Sequence[str], runs: Sequence[Run]) -> None:
    rows: dict[str, list[str]] = {}
    for run in runs:
        found, record = figures_of(run), recorded(run)
        best = "" if found["best_loss"] is None else f"{found['best_loss']:.4f} at step {found['best_step']:,}"
        cells = {
            "task": found["task"],
            "steps": f"{found['step']:,} of {found['steps']:,}",
            "last training loss": _loss(found["loss"]),
            "last validation loss": _loss(found["val_loss"]),
            "best validation loss": best,
            "right": "" if found["accuracy"] is None else f"{found['accuracy']:.2%}",
            "tokens trained on": f"{found['tokens']:,}",
            "seconds of training": f"{found['seconds']:,.1f}",
            "engine": f"{record['engine']}, {record['cores']} cores" if record else "",
            "tokens/s": "" if found["tokens_per_second"] is None else f"{found['tokens_per_second']:,.0f}",
        }
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    _print(out, "Results", ("", *(f">{name}" for name in names)), [(name, *cells) for name, cells in rows.items()])


def _print_settings(out: Console, names: Sequence[str], runs: Sequence[Run]) -> None:
    found = differing(runs)
    if not found:
        out.print("All settings are the same.")
        return
    rows = [
        (name, *("" if value is MISSING else default_text(value) for value in values)) for name, values in found.items()
    ]
    _print(out, "Settings that differ", ("setting", *names), rows)


def _print_losses(out: Console, names: Sequence[str], curves: Sequence[Curves]) -> None:
    kinds = {"validation" if judged(one) is one.validation else "training" for one in curves}
    kind = kinds.pop() if len(kinds) == 1 else "validation (else training)"
    columns = [f">{name}" for name in names]
    steps = [(f"{step:,}", *map(_loss, values)) for step, values in by_step(curves)]
    _print(out, f"Loss by step ({kind})", (">step", *columns), steps)
    found = by_time(curves)
    places = 1 if found and found[-1][0] >= 100 else 2
    times = [(f"{time:,.{places}f}", *map(_loss, values)) for time, values in found]
    _print(out, f"Loss by time ({kind})", (">seconds", *columns), times)


def _print_samples(out: Console, name: str, said: Sequence[tuple[str, str]] | str) -> None:
    if isinstance(said, str):
        out.print(f"{name}: no samples: {said}", markup=False)
        return
    out.print(f"{name} answers:", markup=False)
    for question, reply in said:
        out.print(f"  {question!r} → {printable(reply)!r}", markup=False)


def _print(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal, and its lines with tabs in a pipe."""
    if out.is_terminal:
        shown = table(*columns, rows=rows, title=title)
        for column in shown.columns:
            column.overflow = "fold"
        out.print(shown, soft_wrap=False)
        return
    print(f"# {title}")
    for row in [[column.removeprefix(">") for column in columns], *rows]:
        print("\t".join(row))


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
