"""`glassformer replay`: go through the training of a recorded run, step by step."""

from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..core.errors import some
from ..core.files import new_folder, write_new
from ..progress.display import waiting
from ..runs.replay import (
    Frame,
    Replay,
    attention_on,
    detected_heads,
    fixed_example,
    gradient_norms_on,
    measure,
    samples,
    weight_norms,
)
from ..runs.replay import replay as open_replay
from ..runs.run import open_run
from ..web.page_export import training_page
from ..web.recordings import RecordedTraining
from . import devices
from .commands import command
from .options import FOLDER, RUN, engine_option, json_option, refuse, text_argument, trust_option
from .output import log, print_json

SHORTEST = 4
"""Tokens that a model must read for heads to be told apart: two that come twice."""
PAGE, FIGURE, FRAMES = "replay.html", "course", 40


@command(
    "Train",
    "glassformer train induction --record --out runs/recorded",
    "glassformer replay runs/recorded",
    "glassformer replay runs/recorded --step 1 --step 2",
)
@click.argument("run", type=RUN, help="A folder that `glassformer train --record` wrote.")
@text_argument("What the model reads; a held-out example if left out.", required=False)
@click.option("--frames", type=click.IntRange(2), help="How many steps to show, denser at the beginning (default: 40).")
@click.option("--step", type=int, multiple=True, help="Show these steps instead; may be repeated.")
@click.option(
    "--out",
    type=FOLDER,
    metavar="DIR",
    help="Where to write: a folder for the page (default: replay in the run folder).",
)
@engine_option
@json_option
@trust_option
def replay(
    run: Path,
    text: str | None,
    frames: int | None,
    step: tuple[int, ...],
    out: Path | None,
    engine: str | None,
    json: bool,
) -> None:
    """Go through the training of a run, step by step: loss, attention, norms and answers, on one page."""
    refuse(frames is not None and step, "--frames", "--step names the steps, so --frames has no meaning")
    refuse(json and out is not None, "--out", "--json writes no page, so --out has no meaning")
    devices.use_engine_of(open_run(run), engine, None)
    with waiting(f"reading {run}"):
        found = open_replay(run)
    steps = found.spaced(frames or FRAMES) if not step else sorted({found.checked(one) for one in step})
    measures = _measures(found, text)
    name = found.run.folder.resolve().name
    history = RecordedTraining(str(run), f"{name}: {found.task.name}, {found.steps[-1]:,} steps", found, text)

    def measure_for_page(frame: Frame) -> dict[str, float]:
        history.measure(frame)
        return {}

    if not json:
        measures["page"] = measure_for_page
    with waiting("computing") as show:
        course = measure(found, steps, measures, progress=lambda done, total: show(done, total, "frames"))
    if json:
        print_json({"run": str(run), "kept": list(found.kept), **course.to_dict()})
        # No step led to frame 0, so it has neither loss nor gradient; every other null is a number that is not finite.
        taken = course.steps > 0
        rows = {name: row[taken] for name, row in course.items() if not isinstance(row, list) and row.dtype.kind == "f"}
        if lost := [name for name, row in rows.items() if not np.isfinite(row).all()]:
            log(f"not finite, and therefore null: {some(lost)}")
        return
    folder = new_folder(run / "replay") if out is None else out
    with waiting("drawing the course and writing the page"):
        from ..plots import save_themes, training_course

        save_themes(partial(training_course, course.steps, course, title=f"Training of {name}"), folder, FIGURE)
        page = write_new(folder / PAGE, training_page(history, text).encode())
    print(f"{len(course.steps)} frames from step {course.steps[0]:,} to {course.steps[-1]:,}; open {page}")


def _measures(found: Replay, text: str | None) -> dict[str, Any]:
    """Return what is measured in each frame, by name."""
    return {
        **({"heads": detected_heads()} if found.run.config.context >= SHORTEST else {}),
        "attention": attention_on(fixed_example(found.task, text)),
        "gradient": _largest(gradient_norms_on(found.trainer.batch(found.task.train, 0))),
        "weight": _largest(weight_norms),
        "answers": samples(),
    }


def _largest(measure: Any, count: int = 8) -> Any:
    """Measure a dict of numbers, but keep only those that are the largest in the first frame."""
    chosen: list[str] = []

    def measured_few(frame: Any) -> dict[str, float]:
        values = measure(frame)
        if not chosen:
            chosen.extend(sorted(values, key=values.__getitem__, reverse=True)[:count])
        return {name: values[name] for name in chosen}

    return measured_few
