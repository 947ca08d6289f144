"""`glassformer bench`: how fast this is on your own machine, and against what else is installed there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..bench.attention import bench_attention
from ..bench.generate import MODELS, bench_generate
from ..bench.machine import machine
from ..bench.report import BYTES, SECONDS, TOKENS, Report
from ..bench.startup import bench_startup
from ..bench.timing import Spread
from ..bench.train import SETTINGS, bench_train
from ..errors import ConfigError
from ..settings import check_known
from .output import JsonOption, bytes_text, console, print_json, table, talk

BENCHMARKS = {"train": tuple(SETTINGS), "generate": MODELS, "attention": (), "startup": ()}
"""Every benchmark and the parts that `--only` can choose of it."""
SECONDS_EACH = 20.0


def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="WHAT", help="What to measure: " + ", ".join(BENCHMARKS) + "; everything unless given."),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Measure PyTorch, JAX, transformers and llama.cpp as well.")
    ] = True,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="One part: " + ", ".join(p for ps in BENCHMARKS.values() for p in ps)),
    ] = None,
    seconds: Annotated[float, typer.Option(help="About how long to measure for each table.")] = SECONDS_EACH,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="SmolLM2's GGUF file, unless it was pulled.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure training, generation, attention and the start, in turns with what else is installed here."""
    chosen = _chosen(what or [], only or [])
    if not seconds > 0:
        raise ConfigError(f"--seconds is {seconds:g}", hint="use a positive number")
    if model is not None and not ("generate" in chosen and "smollm2" in (chosen["generate"] or MODELS)):
        raise ConfigError("--model is SmolLM2's file, which is not measured now", hint="add generate, or leave it out")
    if model is not None and not model.is_file():
        raise ConfigError(f"there is no file {model}", hint="fetch it with `glassformer pull smollm2`")
    facts, out = machine(), console()
    if not json:
        out.print(_machine_line(facts))
    reports = []
    for report in _reports(chosen, peers=peers, seconds=seconds, model=model):
        reports.append(report)
        if not json:
            show(report, out)
    ok = all(report.ok for report in reports)
    if json:
        print_json({"machine": facts, "ok": ok, "reports": [report.to_dict() for report in reports]})
    if not ok:
        raise typer.Exit(1)


def _chosen(what: list[str], only: list[str]) -> dict[str, list[str]]:
    """Return the parts to measure of every benchmark that was asked for; none stands for all of them."""
    for name in what:
        check_known("there is no benchmark", name, BENCHMARKS)
    wanted = what or [name for name, parts in BENCHMARKS.items() if not only or set(parts) & set(only)]
    known = [part for name in wanted or BENCHMARKS for part in BENCHMARKS[name]]
    for part in only:
        fact = f"{' and '.join(what) or 'bench'} has no part"
        if not known:
            raise ConfigError(f"{fact} {part!r}", hint="leave out --only")
        check_known(fact, part, known)
    return {name: [part for part in only if part in BENCHMARKS[name]] for name in wanted}


def _reports(chosen: dict[str, list[str]], *, peers: bool, seconds: float, model: Path | None) -> Iterator[Report]:
    for name, parts in chosen.items():
        if name == "train":
            yield from bench_train(peers=peers, seconds=seconds, sizes=parts, talk=talk)
        elif name == "generate":
            yield from bench_generate(peers=peers, seconds=seconds, models=parts, path=model, talk=talk)
        elif name == "attention":
            yield from bench_attention(peers=peers, seconds=seconds, talk=talk)
        else:
            yield from bench_startup(peers=peers, seconds=seconds, talk=talk)


def show(report: Report, out: Console) -> None:
    """Print a report: ratios first, then the figures, the bars and what is to be known about them."""
    with_ratio = any(figure.ratio is not None for figure in report.figures)
    heads = [">ratio", ">middle half"] if with_ratio else []
    title = f"{report.title}\nratio: {report.ratio}" if with_ratio else report.title
    unit = ">tokens/s" if report.unit == TOKENS else ">median"
    rows = table("", *heads, unit, ">middle half", title=title)
    for figure in report.figures:
        ratio = _cells(figure.ratio, lambda value: f"{value:.2f}") if with_ratio else []
        rows.add_row(figure.name, *ratio, *_cells(figure.value, _UNITS[report.unit]))
    out.print(rows if report.figures else report.title)
    for bar in report.bars:
        verdict = "[green]reached[/green]" if bar.ok else "[bold red]missed[/bold red]"
        out.print(f"{bar.what}: {bar.value:.2f}, bar {'≤' if bar.at_most else '≥'} {bar.bar:g}: {verdict}")
    for check in report.checks:
        verdict = "[green]same[/green]" if check.ok else "[bold red]DIFFERENT[/bold red]"
        out.print(f"{check.what}: {check.error:.1e}, limit {check.limit:g}: {verdict}")
    for note in report.notes:
        out.print(f"note: {note}", markup=False)
    out.print()


def _cells(spread: Spread | None, text: Callable[[float], str]) -> list[str]:
    """Return the median and the quartiles as text, the unit once if they share it."""
    if spread is None:
        return ["", ""]
    low, high = text(spread.low), text(spread.high)
    unit = high.partition(" ")[2]
    low = low.removesuffix(f" {unit}") if unit else low
    return [text(spread.median), f"{low} – {high}" if spread.count > 1 else ""]


def seconds_text(seconds: float) -> str:
    """Write a time with three digits: 1.23 s, 45.6 ms, 789 µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            value = seconds / size
            return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f} {unit}"
    raise AssertionError


_UNITS = {SECONDS: seconds_text, TOKENS: lambda value: f"{value:.1f}", BYTES: bytes_text}


def _machine_line(facts: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"{facts['cpu']}, {facts['cores']} cores; {facts['blas']}; Python {facts['python']}, {versions}"
