"""`glassformer demo`: the main job in about a minute, on data that every Python carries."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from ..core import dispatch
from ..core.errors import ConfigError, typed
from ..core.files import new_folder, write_new
from ..generation.answer import ask
from ..progress.display import waiting
from ..proofs import prove_all
from ..runs.session import TrainingSession
from ..runs.start import new_session
from ..web.page_export import models_page
from .commands import command
from .options import json_option, out_option
from .output import log, print_json, print_table
from .train import run_session

LANGUAGES = ["en", "de", "fr", "es", "it", "nl", "pt", "sv"]
MUON = {"optimizer": "muon", "lr": 0.03, "warmup": 20}  # needs half as many steps here as AdamW
PARTS: dict[str, dict[str, Any]] = {
    "majority": {"steps": 400, "eval_every": 100},
    "text": {"steps": 350, "eval_every": 175, "width": 64, "layers": 2, **MUON},
    "dates": {
        "locales": LANGUAGES, "train": 16000, "positions": "rotary", "encoder_layers": 1, "layers": 1,
        "steps": 360, "eval_every": 90, "weight_decay": 0.5, **MUON,
    },
}  # fmt: skip
"""The tasks of the demonstration, one for each architecture, and what is changed to fit them into a minute."""

DATES = ("3. März 2001", "14 juillet 1989", "December 25, 2024", "2 de mayo de 1999")
PROMPT = "The "

PAGE = "index.html"
COLUMNS = ("task", "architecture", ">parameters", ">steps", ">held-out loss", ">right", ">seconds")
BEST = "Loss and accuracy are those of each model's best checkpoint, which has the lowest held-out loss."


@command("Start", "glassformer demo", "glassformer demo --out runs/first")
@out_option("a folder for the runs and the page (default: a new one, runs/demo)")
@json_option
def demo(out: Path | None, json: bool) -> None:
    """Train a classifier, a language model and a date translator, and write a page to look into them."""
    began = time.perf_counter()
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists already", hint="choose another --out, or leave it out for a new folder")
    folder = new_folder(Path("runs") / "demo") if out is None else out
    sessions: dict[str, TrainingSession] = {}
    results: list[dict[str, Any]] = []
    with dispatch.current().executor.beside(prove_all) as proved:
        for name, settings in PARTS.items():
            session = sessions[name] = new_session(name, folder / name, settings=settings)
            log(f"{name}: {session.task.summary}")
            results.append({"architecture": session.run.config.architecture, **run_session(session)})
        with waiting("proving gradients") as show:
            proofs = proved(lambda done, total: show(done, total, "cases"))
    exact = sum(row.ok for row in proofs)
    with waiting("letting them answer"):
        said = ask(sessions["text"].best, PROMPT, length=300)
        dates = {typed: ask(sessions["dates"].best, typed) for typed in DATES}
    with waiting("writing the page"):
        models = [(name, session.best, None) for name, session in sessions.items()]
        page = write_new(folder / PAGE, models_page(models).encode())
    summary = {
        "gradients": {"exact": exact, "of": len(proofs)},
        "runs": results,
        "text": PROMPT + said,
        "dates": dates,
        "page": str(page),
        "explore": f"glassformer explore {typed(folder / 'text')}",
        "inspect": f"glassformer inspect {typed(folder / 'dates')}",
        "seconds": round(time.perf_counter() - began, 1),
    }
    if json:
        print_json(summary)
    else:
        _print(summary)
    if exact < len(proofs):
        raise click.exceptions.Exit(1)


def _print(summary: dict[str, Any]) -> None:
    rows = []
    for line in summary["runs"]:
        right = "" if line["accuracy"] is None else f"{line['accuracy']:.1%}"
        figures = (f"{line['parameters']:,}", f"{line['steps']:,}", f"{line['val_loss']:.3f}", right)
        rows.append((line["task"], line["architecture"], *figures, f"{line['seconds']:.0f}"))
    exact, of = summary["gradients"].values()
    print(f"{exact} of {of} gradients are exact: the formulas agree with numeric derivatives on this machine.")
    print_table(COLUMNS, rows, title="Trained from scratch, here")
    print(BEST)
    text = next(line for line in summary["runs"] if line["task"] == "text")
    learned = f"{text['steps']:,} steps ({text['seconds']:.0f} s) on Python's documentation"
    print(f"The decoder, after {learned}, continues {PROMPT!r} letter by letter.")
    print("Expect many invented words; `glassformer train text` takes 2,000 steps instead:")
    print(summary["text"])
    print_table(("typed", "read as"), summary["dates"].items(), title="The encoder-decoder reads dates")
    print(f"{summary['seconds']:.0f} s in all. Open {summary['page']} to look into all three.")
    if (activation := _activation()) is not None:
        print(f"In a new shell, first: cd {typed(Path.cwd())} && {activation}")
    print(f"To change any number inside the decoder: {summary['explore']}")
    print(f"To draw all there is to see in the encoder-decoder: {summary['inspect']}")


def _activation() -> str | None:
    """Return what makes the command known to a new shell; None where it is known already."""
    if shutil.which("glassformer") is not None or sys.prefix == sys.base_prefix:
        return None
    if os.name == "nt":
        return str(Path(sys.prefix) / "Scripts" / "activate")
    return f"source {typed(Path(sys.prefix) / 'bin' / 'activate')}"
