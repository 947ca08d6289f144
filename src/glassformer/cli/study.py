"""`glassformer study`: experiments with seeds and error bars, from a question to a report."""

from pathlib import Path
from typing import Any

import click

from ..core.errors import ConfigError, GlassformerError
from ..studies import Study, read_study, run_study, studies
from ..studies.report import REPORT, plain_row
from ..studies.running import FOLDER
from .commands import command
from .options import PATH, Offers, engine_option, json_option, out_option
from .output import log, print_json, print_table

STUDY = Offers("file", names=lambda: {name: one.question for name, one in studies().items()})


@command(
    "Learn",
    "glassformer study",
    "glassformer study cost --quick",
    "glassformer study scaling --seeds 2 --out budgets",
)
@click.argument("name", type=STUDY, required=False, help="A study, or a Python file that holds one of your own.")
@click.option("--quick", is_flag=True, help="The shape of the answer in about a minute: fewer steps, points and seeds.")
@click.option("--seeds", type=click.IntRange(1), metavar="N", help="Runs of each point (default: as the study says).")
@engine_option
@click.option(
    "--from", "rows_file", type=PATH, metavar="FILE", help="Read measurements from a JSON file: of `scaling`."
)
@out_option("a folder for rows, figures and the report (default: studies/NAME, or studies/NAME-quick)")
@json_option
def study(
    name: str | None,
    quick: bool,
    seeds: int | None,
    engine: str | None,
    rows_file: Path | None,
    out: Path | None,
    json: bool,
) -> None:
    """Run an experiment from a question to a table, figures and one sentence; finished runs are kept and reused.

    Without a name, list the studies, and how long each takes here; with --out alone, in another folder than studies.
    """
    if name is None:
        for option, given in {"--quick": quick, "--seeds": seeds, "--from": rows_file}.items():
            if given:
                hint = "name one: `glassformer study` lists them"
                raise ConfigError(f"{option} belongs to a study, and none is named", hint=hint)
        listed(out, json=json)
        return
    made = run_study(name, quick=quick, seeds=seeds, engine=engine, out=out, source=rows_file)
    if json:
        facts: dict[str, Any] = {one: getattr(made, one) for one in ("name", "question", "published", "findings")}
        print_json({**facts, "report": str(made.folder / REPORT), "rows": [plain_row(row) for row in made.rows]})
        return
    print_table(made.columns, made.table, title="\n".join(made.findings))
    log(f"wrote {made.folder / REPORT}")


def listed(out: Path | None, *, json: bool) -> None:
    """Print all studies."""
    rows = [(one.name, one.question, *_takes(one, out or FOLDER)) for one in studies().values()]
    if json:
        print_json([dict(zip(("name", "question", "minutes", "here"), row, strict=True)) for row in rows])
        return
    print_table(("study", "question", ">minutes", "here"), rows)
    log("`glassformer study NAME` runs one and takes the minutes above on two cores; --quick takes about one")


def _takes(one: Study, folder: Path) -> tuple[float, str]:
    """Return the minutes that a study takes, those that it took here if it did, and what is here."""
    for name, says in ((one.name, "done"), (f"{one.name}-quick", "quick")):
        try:
            made = read_study(folder / name)
        except GlassformerError:
            continue
        minutes = sum(row.get("seconds", 0.0) for row in made.rows) / 60
        return (round(minutes, 1) if says == "done" else float(one.minutes)), says
    return float(one.minutes), ""
