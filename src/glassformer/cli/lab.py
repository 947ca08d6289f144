"""`glassformer lab`: exercises that say which term is wrong."""

import csv
import sys
from pathlib import Path

import click
from rich.text import Text

from ..core.files import write_new
from ..labs import desk, list_labs
from ..labs.check import check_file
from ..labs.lab import get_lab
from ..labs.sandbox import SECONDS
from ..progress.display import waiting
from .commands import command
from .options import FOLDER, PATH, Offers, json_option
from .output import log, plural, print_json, print_table

LAB = Offers("file", names=lambda: {lab.name: lab.title for lab in list_labs()})
seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=SECONDS,
    help="How long a file may compute at each step.",
)
lab_option = click.option(
    "--lab", type=LAB, metavar="NAME", help="The lab it solves (default: what its line LAB = … says)."
)
lab_argument = click.argument("lab", type=LAB, metavar="NAME", help="A lab by name, or the file of a lab of your own.")


@command(
    "Learn",
    "glassformer lab",
    "glassformer lab start softmax_backward",
    "glassformer lab hint softmax_backward",
    "glassformer lab solution softmax_backward --anyway --out solved.py",
    "glassformer lab check solved.py",
    cls=click.Group,
    invoke_without_command=True,
)
@json_option
@click.pass_context
def lab(ctx: click.Context, json: bool) -> None:
    """Learn by writing it: labs from softmax to a whole block, with a checker that names the wrong term.

    Without a command, list the labs in the order of the book.
    """
    if ctx.invoked_subcommand is not None:
        return
    rows = desk.progress(".")
    if json:
        print_json({"labs": rows})
        return
    cells = [tuple(row[name] for name in ("number", "name", "chapter", "title", "state")) for row in rows]
    print_table((">", "lab", "chapter", "what it is about", "here"), cells)
    log(
        "`glassformer lab start NAME` writes a file to fill in; `glassformer lab check FILE` says what is wrong with it"
    )


@lab.command()
@lab_argument
@click.option("--notebook", is_flag=True, help="Write a notebook instead of a Python file.")
@click.option("--out", type=PATH, metavar="FILE", help="The file to write (default: NAME.py here).")
@json_option
def start(lab: str, notebook: bool, out: Path | None, json: bool) -> None:
    """Write a file with functions to fill in."""
    path = desk.start(lab, out, as_notebook=notebook)
    if json:
        print_json({"lab": get_lab(lab).name, "path": str(path)})
        return
    print(path)
    log(f"fill in the functions, then: glassformer lab check {path}")


@lab.command()
@click.argument("file", type=PATH, help="The Python file or notebook to check.")
@lab_option
@seconds_option
@json_option
def check(file: Path, lab: str | None, seconds: float, json: bool) -> None:
    """Check a file and say what is wrong.

    The message names the term, the sign or the axis. The file runs in a process of its own with limits on time and
    memory. Exit 1 if it is not right yet.
    """
    with waiting(f"checking {file.name}", compiles=False):
        verdict = check_file(file, lab, seconds=seconds)
    if json:
        print_json(verdict.as_dict())
    else:
        print(verdict)
    if not verdict.ok:
        raise click.exceptions.Exit(1)


@lab.command()
@lab_argument
@click.option("-n", "number", type=int, help="How many hints to show (default: one more than last time).")
@json_option
def hint(lab: str, number: int | None, json: bool) -> None:
    """Open the next hint of a lab."""
    hints, total = desk.hint(lab, number), len(get_lab(lab).hints)
    if json:
        print_json({"lab": lab, "hints": hints, "total": total})
        return
    for at, text in enumerate(hints, start=1):
        print(f"{at}. {text}")
    left = total - len(hints)
    log(f"{plural(left, 'more hint')}: run this again to open the next one" if left else "that was the last hint")


@lab.command()
@lab_argument
@click.option("--anyway", is_flag=True, help="Show it even without a try.")
@click.option("--out", type=PATH, metavar="FILE", help="Write it into this file.")
def solution(lab: str, anyway: bool, out: Path | None) -> None:
    """Show the solution of a lab after a try.

    A try counts once you have checked it in this folder.
    """
    text = desk.solution(lab, anyway=anyway)
    if out is None:
        print(text, end="")
    else:
        write_new(out, text.encode())
        log(f"wrote {out}")


@lab.command()
@click.argument("folder", type=FOLDER, help="The folder with the files of a class, also in folders below it.")
@lab_option
@seconds_option
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, with a line for each file.")
@json_option
def grade(folder: Path, lab: str | None, seconds: float, as_csv: bool, json: bool) -> None:
    """Check every file of a class.

    Each line says whether a file is right, which kind of mistake it has, and what to tell its author.
    """
    with waiting("grading", compiles=False) as show:
        rows = list(desk.grade(folder, lab=lab, seconds=seconds, report=show))
    right = sum(row["right"] for row in rows)
    if json:
        print_json({"files": rows, "right": right})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, desk.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    else:
        marks = {True: Text("right", style="green"), False: Text("not yet", style="red")}
        cells = [(row["file"], row["lab"], marks[row["right"]], row["kind"], row["finding"]) for row in rows]
        print_table(("file", "lab", "verdict", "kind", "what is wrong"), cells)
    log(f"{right} of {plural(len(rows), 'file')} right")
