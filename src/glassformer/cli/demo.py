"""`glassformer demo`: the main job in about two minutes, on data that every Python carries."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..proofs import prove_all
from ..runs.session import Session, new_session
from .demo_page import COLUMNS, write_page
from .output import JsonOption, console, print_json, table, talk
from .train import free_folder, run_session

LANGUAGES = ["en", "de", "fr", "es", "it", "nl", "pt", "sv"]
PARTS: dict[str, dict[str, Any]] = {
    "majority": {"steps": 400, "eval_every": 100},
    "text": {"steps": 500, "eval_every": 250, "width": 64, "layers": 2},
    "dates": {
        "locales": LANGUAGES, "train": 16000, "positions": "rotary", "encoder_layers": 1, "layers": 1,
        "steps": 700, "eval_every": 175, "lr": 4e-3, "warmup": 50,
    },
}  # fmt: skip
"""The tasks of the demonstration, one for each architecture, and what is changed to fit them into two minutes."""

DATES = ("3. März 2001", "14 juillet 1989", "December 25, 2024", "2 de mayo de 1999")
PROMPT = "The "


def demo(
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the runs and the report.")] = None,
    json: JsonOption = False,
) -> None:
    """Train a classifier, a language model and a date translator, and write a report with pictures."""
    began = time.perf_counter()
    folder = free_folder(Path("runs") / "demo") if out is None else out
    talk("Proving every gradient on this machine ...")
    proofs = prove_all()
    exact = sum(row.ok for row in proofs)
    talk(f"{exact} of {len(proofs)} gradients are exact.")
    sessions: dict[str, Session] = {}
    results: list[dict[str, Any]] = []
    for name, settings in PARTS.items():
        session = sessions[name] = new_session(name, folder / name, settings=settings)
        talk(f"Training {name}: {session.task.summary} ...")
        results.append(run_session(session, quiet=json))
    said = sessions["text"].trained.ask(PROMPT, length=300)
    dates = {typed: sessions["dates"].trained.ask(typed) for typed in DATES}
    talk("Drawing ...")
    page = write_page(folder, sessions, [_row(line) for line in results], PROMPT + said, dates)
    summary = {
        "gradients": {"exact": exact, "of": len(proofs)},
        "runs": results,
        "text": PROMPT + said,
        "dates": dates,
        "report": str(page),
        "seconds": round(time.perf_counter() - began, 1),
    }
    if json:
        print_json(summary)
    else:
        _print(summary)
    if exact < len(proofs):
        raise typer.Exit(1)


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    right = "" if line["accuracy"] is None else f"{line['accuracy']:.1%}"
    figures = (f"{line['parameters']:,}", f"{line['steps']:,}", f"{line['val_loss']:.3f}", right)
    return (line["task"], *figures, f"{line['seconds']:.0f}")


def _print(summary: dict[str, Any]) -> None:
    out = console()
    task, *figures = COLUMNS
    rows = [_row(line) for line in summary["runs"]]
    out.print(table(task, *(f">{name}" for name in figures), rows=rows, title="Trained from scratch, here"))
    out.print(f"The language model continues {PROMPT!r}:", markup=False)
    out.print(summary["text"], markup=False)
    out.print(table("typed", "read as", rows=summary["dates"].items()))
    out.print(f"{summary['seconds']:.0f} s in all. Open {summary['report']}", markup=False)
